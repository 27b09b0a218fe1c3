//! Typed documents from strict values.
//!
//! Owns the [`Deserializer`] over a [`Value`] that reads an object where a structure is wanted, and nothing else: serde's derived
//! code would also take an array of the fields in their order, past names and unknown-field checks. Invariant: one document has
//! one reading. An internally tagged enum is buffered by serde before it is read, so such an enum guards only its own tag.

use serde::de::{
    self, DeserializeSeed, Deserializer, EnumAccess, Expected, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde_json::{Error, Map, Value, map, value};

/// A value that is read by name.
#[derive(Debug)]
pub(super) struct ByName(pub(super) Value);

impl ByName {
    fn misfit(&self, expected: &dyn Expected) -> Error {
        let found = match &self.0 {
            Value::Null => Unexpected::Unit,
            Value::Bool(truth) => Unexpected::Bool(*truth),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(whole), _, _) => Unexpected::Unsigned(whole),
                (None, Some(whole), _) => Unexpected::Signed(whole),
                (None, None, Some(double)) => Unexpected::Float(double),
                (None, None, None) => Unexpected::Other("number"),
            },
            Value::String(text) => Unexpected::Str(text),
            Value::Array(_) => Unexpected::Seq,
            Value::Object(_) => Unexpected::Map,
        };
        de::Error::invalid_type(found, expected)
    }
}

fn sequence<'de, V: Visitor<'de>>(items: Vec<Value>, visitor: V) -> Result<V::Value, Error> {
    let count = items.len();
    let mut items = Items(items.into_iter());
    let read = visitor.visit_seq(&mut items)?;
    if items.0.len() == 0 {
        Ok(read)
    } else {
        Err(de::Error::invalid_length(count, &"fewer elements in array"))
    }
}

fn members<'de, V: Visitor<'de>>(
    object: Map<String, Value>,
    visitor: V,
) -> Result<V::Value, Error> {
    let count = object.len();
    let mut members = Members { rest: object.into_iter(), value: None };
    let read = visitor.visit_map(&mut members)?;
    if members.rest.len() == 0 {
        Ok(read)
    } else {
        Err(de::Error::invalid_length(count, &"fewer elements in map"))
    }
}

/// Scalars hold nothing to be read by name.
macro_rules! as_the_value_does {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            self.0.$method(visitor)
        })*
    };
}

impl<'de> Deserializer<'de> for ByName {
    type Error = Error;

    as_the_value_does! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_string
        deserialize_bytes deserialize_byte_buf deserialize_unit deserialize_identifier
        deserialize_ignored_any
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(items) => sequence(items, visitor),
            Value::Object(object) => members(object, visitor),
            scalar @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
                scalar.deserialize_any(visitor)
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_unit_struct(name, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(items) => sequence(items, visitor),
            other @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_)) => Err(Self(other).misfit(&visitor)),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Object(object) => members(object, visitor),
            other @ (Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_)) => Err(Self(other).misfit(&visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let Value::Object(object) = self.0 else {
            return self.0.deserialize_enum(name, variants, visitor);
        };
        let mut members = object.into_iter();
        match (members.next(), members.next()) {
            (Some((variant, content)), None) => visitor.visit_enum(Variant { variant, content }),
            (None, _) | (Some(_), Some(_)) => {
                Err(de::Error::invalid_value(Unexpected::Map, &"map with a single key"))
            }
        }
    }
}

struct Items(std::vec::IntoIter<Value>);

impl<'de> SeqAccess<'de> for Items {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        self.0.next().map(|item| seed.deserialize(ByName(item))).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

struct Members {
    rest: map::IntoIter,
    value: Option<Value>,
}

impl<'de> MapAccess<'de> for Members {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some((key, value)) = self.rest.next() else { return Ok(None) };
        self.value = Some(value);
        // A key is a string, also where a type around a string is wanted.
        seed.deserialize(ByName(Value::String(key))).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let value = self.value.take().ok_or_else(|| de::Error::custom("value is missing"))?;
        seed.deserialize(ByName(value))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

struct Variant {
    variant: String,
    content: Value,
}

impl<'de> EnumAccess<'de> for Variant {
    type Error = Error;
    type Variant = Content;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Content), Error> {
        let name: value::Value = Value::String(self.variant);
        Ok((seed.deserialize(name.into_deserializer())?, Content(self.content)))
    }
}

struct Content(Value);

impl<'de> VariantAccess<'de> for Content {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        de::Deserialize::deserialize(ByName(self.0))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        seed.deserialize(ByName(self.0))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Error> {
        ByName(self.0).deserialize_seq(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        ByName(self.0).deserialize_map(visitor)
    }
}
