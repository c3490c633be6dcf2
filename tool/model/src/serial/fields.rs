//! [`Value`] as serde's derives read it, with less code than serde_json's own way for each
//! of our hundred types: a struct is read from an object only, never from an array, and what
//! does not depend on the type is compiled once.

use serde::de::value::StringDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Value, map};
use std::vec;

/// Reads a type from a value held in memory.
pub(super) fn read<T: DeserializeOwned>(value: Value) -> Result<T, Error> {
    T::deserialize(Held(value))
}

struct Held(Value);

impl Held {
    fn fields(self, expected: &dyn serde::de::Expected) -> Result<Fields, Error> {
        match self.0 {
            Value::Object(fields) => Ok(Fields {
                left: fields.into_iter(),
                value: Value::Null,
            }),
            other => Err(Error::invalid_type(unexpected(&other), expected)),
        }
    }

    fn items(self, expected: &dyn serde::de::Expected) -> Result<Items, Error> {
        match self.0 {
            Value::Array(items) => Ok(Items(items.into_iter())),
            other => Err(Error::invalid_type(unexpected(&other), expected)),
        }
    }

    fn text(self, expected: &dyn serde::de::Expected) -> Result<String, Error> {
        match self.0 {
            Value::String(text) => Ok(text),
            other => Err(Error::invalid_type(unexpected(&other), expected)),
        }
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
        let fields = self.fields(&visitor)?;
        visitor.visit_map(fields)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let fields = self.fields(&visitor)?;
        visitor.visit_map(fields)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let items = self.items(&visitor)?;
        visitor.visit_seq(items)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        let items = self.items(&visitor)?;
        match items.0.len() == length {
            true => visitor.visit_seq(items),
            false => Err(Error::invalid_length(items.0.len(), &visitor)),
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

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let text = self.text(&visitor)?;
        visitor.visit_string(text)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_string(visitor)
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
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit
        unit_struct tuple_struct identifier
    }
}

struct Items(vec::IntoIter<Value>);

impl<'de> SeqAccess<'de> for Items {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let next = self.0.next();
        next.map(|value| seed.deserialize(Held(value))).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

struct Fields {
    left: map::IntoIter,
    /// The value of the name that was read last.
    value: Value,
}

impl Fields {
    fn next(&mut self) -> Option<StringDeserializer<Error>> {
        let (name, value) = self.left.next()?;
        self.value = value;
        Some(name.into_deserializer())
    }
}

impl<'de> MapAccess<'de> for Fields {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let next = self.next();
        next.map(|name| seed.deserialize(name)).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(Held(self.value.take()))
    }
}
