//! The few shapes that LDAP's messages are made of (RFC 4511, section 5.1), on
//! top of `lber`, which knows how they become bytes.

use lber::common::TagClass;
use lber::structure::{PL, StructureTag};
use lber::structures::{ASNTag, Boolean, Enumerated, Integer, Sequence};

pub(super) fn primitive(class: TagClass, id: u64, bytes: Vec<u8>) -> StructureTag {
    StructureTag {
        class,
        id,
        payload: PL::P(bytes),
    }
}

pub(super) fn constructed(class: TagClass, id: u64, parts: Vec<StructureTag>) -> StructureTag {
    StructureTag {
        class,
        id,
        payload: PL::C(parts),
    }
}

/// `[id]` of bytes, within a message's own part.
pub(super) fn context(id: u64, bytes: impl Into<Vec<u8>>) -> StructureTag {
    primitive(TagClass::Context, id, bytes.into())
}

/// `[id]` of parts.
pub(super) fn group(id: u64, parts: Vec<StructureTag>) -> StructureTag {
    constructed(TagClass::Context, id, parts)
}

pub(super) fn octets(bytes: impl Into<Vec<u8>>) -> StructureTag {
    const OCTET_STRING: u64 = 4;
    primitive(TagClass::Universal, OCTET_STRING, bytes.into())
}

pub(super) fn sequence(parts: Vec<StructureTag>) -> StructureTag {
    constructed(TagClass::Universal, Sequence::default().id, parts)
}

pub(super) fn integer(inner: i64) -> StructureTag {
    let integer = Integer {
        inner,
        ..Integer::default()
    };
    integer.into_structure()
}

pub(super) fn enumerated(inner: i64) -> StructureTag {
    let enumerated = Enumerated {
        inner,
        ..Enumerated::default()
    };
    enumerated.into_structure()
}

pub(super) fn boolean(inner: bool) -> StructureTag {
    let boolean = Boolean {
        inner,
        ..Boolean::default()
    };
    boolean.into_structure()
}
