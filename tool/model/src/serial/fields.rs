//! [`Value`] as serde's derives read it, with less code than serde_json's own way for each
//! of our hundred types: a struct is read from an object only, never from an array, and what
//! does not depend on the type is compiled once.

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{
    DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Value};

/// Reads a type from a value held in memory.
pub(super) fn read<T: DeserializeOwned>(value: Value) -> Result<T, Error> {
    T::deserialize(Held(value))
}

struct Held(Value);

impl IntoDeserializer<'_, Error> for Held {
    type Deserializer = Held;

    fn into_deserializer(self) -> Held {
        self
    }
}

fn unexpected(value: &Value) -> Unexpected<'_> {
    match value {
        Value::Null => Unexpected::Unit,
        Value::Bool(yes) => Unexpected::Bool(*yes),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => Unexpected::Unsigned(number),
            (None, Some(number)) => Unexpected::Signed(number),
            (None, None) => Unexpected::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Unexpected::Str(text),
        Value::Array(_) => Unexpected::Seq,
        Value::Object(_) => Unexpected::Map,
    }
}

impl<'de> Deserializer<'de> for Held {
    type Error = Error;

    /// Serves types that ask the value for its form: numbers, lists in several forms, flattened
    /// fields.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.0.deserialize_any(visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Object(fields) => {
                let held = fields.into_iter().map(|(name, value)| (name, Held(value)));
                visitor.visit_map(MapDeserializer::new(held))
            }
            other => Err(Error::invalid_type(unexpected(&other), &visitor)),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(items) => {
                visitor.visit_seq(SeqDeserializer::new(items.into_iter().map(Held)))
            }
            other => Err(Error::invalid_type(unexpected(&other), &visitor)),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        match &self.0 {
            Value::Array(items) if items.len() != length => {
                Err(Error::invalid_length(items.len(), &visitor))
            }
            _ => self.deserialize_seq(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    /// Variants with data are objects with one field.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
        unit unit_struct tuple_struct identifier
    }
}
