//! Values of columns and payloads: what JSON has, and what superjson adds to it.

use std::collections::BTreeMap;

use num_bigint::BigInt;

/// A value of a column or in a payload.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Nothing was said. Only in entries of your own; a column is left out instead.
    Undefined,
    /// Null.
    Null,
    /// True or false.
    Bool(bool),
    /// A number, NaN and the infinities included.
    Number(f64),
    /// A whole number of any size.
    BigInt(BigInt),
    /// Text.
    Text(String),
    /// A time.
    Date(Date),
    /// Bytes, a `Uint8Array` in JavaScript.
    Bytes(Vec<u8>),
    /// A list.
    Array(Vec<Value>),
    /// An object.
    Object(BTreeMap<String, Value>),
    /// A set, in its order.
    Set(Vec<Value>),
    /// A map, in its order.
    Map(Vec<(Value, Value)>),
}

/// A time in milliseconds since 1970, as finely as JavaScript knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date(i64);
