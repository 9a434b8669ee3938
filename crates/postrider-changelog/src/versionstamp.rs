//! The place of a mutation in the order of commits, as FoundationDB writes it: twelve bytes that compare like the order itself.
//!
//! The first ten are the transaction version, a big-endian number that a transaction reserves with its first statement and
//! that no other one has; the last two number the mutations within it. Both are big-endian, so comparing stamps byte by byte,
//! as databases compare blobs and as text compares in hexadecimal, is comparing commits. The first version is 1, so the stamp
//! of zeros lies before everything and means "from the beginning".

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How many bits a transaction version has.
const BITS: u32 = 80;
/// How many bytes a stamp has.
const BYTES: usize = 12;

/// The number of a transaction, of 80 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TransactionVersion(u128);

impl TransactionVersion {
    /// Before the first one.
    pub const ZERO: Self = Self(0);
    /// The largest one.
    pub const MAX: Self = Self((1 << BITS) - 1);

    /// A number, if it fits into 80 bits.
    pub const fn new(number: u128) -> Option<Self> {
        if number <= Self::MAX.0 { Some(Self(number)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u128 {
        self.0
    }

    /// The number so many further on, if there is one.
    pub fn checked_add(self, count: u128) -> Option<Self> {
        Self::new(self.0.checked_add(count)?)
    }

    /// The number so many before, if there is one.
    pub fn checked_sub(self, count: u128) -> Option<Self> {
        self.0.checked_sub(count).map(Self)
    }
}

impl fmt::Display for TransactionVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for TransactionVersion {
    type Err = InvalidVersionstamp;

    /// Reads a decimal number: digits and nothing else.
    fn from_str(text: &str) -> Result<Self, InvalidVersionstamp> {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.then(|| text.parse().ok()).flatten().and_then(Self::new);
        number.ok_or(InvalidVersionstamp::Number)
    }
}

/// The place of a mutation, or of an entry, in the order of commits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Versionstamp([u8; BYTES]);

impl Versionstamp {
    /// Before everything: "from the beginning".
    pub const ZERO: Self = Self([0; BYTES]);
    /// After everything.
    pub const MAX: Self = Self([0xff; BYTES]);

    /// The stamp of a mutation of a transaction.
    pub fn new(version: TransactionVersion, user_version: u16) -> Self {
        Self::of_number((version.0 << 16) | u128::from(user_version))
    }

    /// From its bytes.
    pub const fn from_bytes(bytes: [u8; BYTES]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub const fn as_bytes(&self) -> &[u8; BYTES] {
        &self.0
    }

    /// The transaction.
    pub fn transaction_version(self) -> TransactionVersion {
        TransactionVersion(self.number() >> 16)
    }

    /// The number of the mutation in its transaction.
    pub const fn user_version(self) -> u16 {
        u16::from_be_bytes([self.0[10], self.0[11]])
    }

    /// The stamp so many further on, through the user versions and on into the next transaction, if there is one.
    pub fn checked_add(self, count: u128) -> Option<Self> {
        let number = self.number().checked_add(count)?;
        (number >> (BITS + 16) == 0).then(|| Self::of_number(number))
    }

    /// The stamp so many before, if there is one.
    pub fn checked_sub(self, count: u128) -> Option<Self> {
        self.number().checked_sub(count).map(Self::of_number)
    }

    fn number(self) -> u128 {
        self.0.iter().fold(0, |number, byte| (number << 8) | u128::from(*byte))
    }

    fn of_number(number: u128) -> Self {
        let mut bytes = [0; BYTES];
        bytes.copy_from_slice(&number.to_be_bytes()[16 - BYTES..]);
        Self(bytes)
    }
}

impl fmt::Display for Versionstamp {
    /// 24 hexadecimal digits in lower case.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Versionstamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Versionstamp({self})")
    }
}

impl FromStr for Versionstamp {
    type Err = InvalidVersionstamp;

    /// Reads 24 hexadecimal digits, in either case.
    fn from_str(text: &str) -> Result<Self, InvalidVersionstamp> {
        if text.len() != 2 * BYTES {
            return Err(InvalidVersionstamp::Length(text.chars().count()));
        }
        if let Some(found) = text.chars().find(|c| !c.is_ascii_hexdigit()) {
            return Err(InvalidVersionstamp::Digit(found));
        }
        u128::from_str_radix(text, 16).map(Self::of_number).map_err(|_| InvalidVersionstamp::Number)
    }
}

impl Serialize for Versionstamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Versionstamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// A text is no versionstamp, or no transaction version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum InvalidVersionstamp {
    #[error("a versionstamp has 24 hexadecimal digits, and this text has {0} characters")]
    Length(usize),
    #[error("a versionstamp has hexadecimal digits only, and this text has {0:?}")]
    Digit(char),
    #[error("a transaction version is a decimal number from 0 to 1208925819614629174706175")]
    Number,
}
