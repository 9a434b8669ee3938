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

#[cfg(test)]
mod tests {
    use num_bigint::BigUint;
    use proptest::prelude::*;

    use super::*;

    /// A stamp as FoundationDB lays it out, byte by byte: ten of the transaction version, two of the user version, the most
    /// significant first.
    fn laid_out(version: &BigUint, user_version: u16) -> [u8; 12] {
        let mut bytes = [0; 12];
        let digits = version.to_bytes_be();
        bytes[10 - digits.len()..10].copy_from_slice(&digits);
        bytes[10] = (user_version / 256) as u8;
        bytes[11] = (user_version % 256) as u8;
        bytes
    }

    /// Any 80 bits, and often those where something carries.
    fn version() -> impl Strategy<Value = u128> {
        let all = (1_u128 << 80) - 1;
        let edges =
            (0_u32..80, -2_i128..=2).prop_map(move |(bit, off)| ((1_u128 << bit).wrapping_add_signed(off)) & all);
        prop_oneof![0..=all, edges, Just(0), Just(all), Just(all - 1)]
    }

    fn user_version() -> impl Strategy<Value = u16> {
        prop_oneof![any::<u16>(), Just(0), Just(1), Just(255), Just(256), Just(u16::MAX)]
    }

    fn stamp(version: u128, user_version: u16) -> Versionstamp {
        Versionstamp::new(TransactionVersion::new(version).expect("80 bits"), user_version)
    }

    fn whole(version: u128, user_version: u16) -> BigUint {
        (BigUint::from(version) << 16_u32) + user_version
    }

    proptest! {
        #[test]
        fn s1_11_a_stamp_has_the_bytes_that_foundationdb_gives_it(version in version(), user in user_version()) {
            let stamp = stamp(version, user);
            let bytes = laid_out(&BigUint::from(version), user);
            prop_assert_eq!(stamp.as_bytes(), &bytes);
            let read = Versionstamp::from_bytes(bytes);
            prop_assert_eq!(read, stamp);
            prop_assert_eq!(read.transaction_version().get(), version);
            prop_assert_eq!(read.user_version(), user);
        }

        #[test]
        fn s1_13_bytes_and_text_compare_like_transaction_and_user_version(
            one in (version(), user_version()),
            other in prop_oneof![(version(), user_version()).prop_map(Some), Just(None)],
            near in (-2_i128..=2, user_version()),
        ) {
            // Often the two are of the same transaction, or of neighbours.
            let all = (1_u128 << 80) - 1;
            let other = other.unwrap_or((one.0.wrapping_add_signed(near.0) & all, near.1));
            let bytes = |(version, user): (u128, u16)| laid_out(&BigUint::from(version), user);
            let order = one.cmp(&other);
            prop_assert_eq!(bytes(one).cmp(&bytes(other)), order);
            let (a, b) = (Versionstamp::from_bytes(bytes(one)), Versionstamp::from_bytes(bytes(other)));
            prop_assert_eq!(a.cmp(&b), order);
            prop_assert_eq!(a.to_string().cmp(&b.to_string()), order);
        }

        #[test]
        fn s1_11_a_stamp_is_read_as_it_was_written(bytes in any::<[u8; 12]>()) {
            let stamp = Versionstamp::from_bytes(bytes);
            let text = stamp.to_string();
            let digits: String = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15])
                .filter_map(|digit| char::from_digit(digit.into(), 16)).collect();
            prop_assert_eq!(&text, &digits);
            prop_assert_eq!(text.parse(), Ok(stamp));
            prop_assert_eq!(text.to_uppercase().parse(), Ok(stamp));
            let json = serde_json::to_string(&stamp).expect("JSON");
            prop_assert_eq!(&json, &format!("\"{text}\""));
            prop_assert_eq!(serde_json::from_str::<Versionstamp>(&json).expect("a stamp"), stamp);
        }

        #[test]
        fn s1_11_stamps_are_reckoned_through_both_versions(
            version in version(),
            user in user_version(),
            count in prop_oneof![0_u128..200_000, version(), any::<u128>()],
        ) {
            let stamp = stamp(version, user);
            let end = BigUint::from(1_u8) << 96_u32;
            let bytes = |number: BigUint| laid_out(&(&number >> 16_u32), (number % 65_536_u32).try_into().expect("16 bits"));
            let sum = whole(version, user) + count;
            let expected = (sum < end).then(|| bytes(sum));
            prop_assert_eq!(stamp.checked_add(count).map(|sum| *sum.as_bytes()), expected);
            let rest = (BigUint::from(count) <= whole(version, user)).then(|| bytes(whole(version, user) - count));
            prop_assert_eq!(stamp.checked_sub(count).map(|rest| *rest.as_bytes()), rest);
        }

        #[test]
        fn s1_8_transaction_versions_are_reckoned_and_read_over_80_bits(
            version in version(),
            count in prop_oneof![version(), any::<u128>()],
        ) {
            let number = TransactionVersion::new(version).expect("80 bits");
            prop_assert_eq!(number.to_string(), BigUint::from(version).to_string());
            prop_assert_eq!(number.to_string().parse(), Ok(number));
            let end = BigUint::from(1_u8) << 80_u32;
            let sum = BigUint::from(version) + count;
            let expected = (sum < end).then(|| sum.to_string());
            prop_assert_eq!(number.checked_add(count).map(|sum| sum.to_string()), expected);
            let rest = (count <= version).then(|| (BigUint::from(version) - count).to_string());
            prop_assert_eq!(number.checked_sub(count).map(|rest| rest.to_string()), rest);
        }

        #[test]
        fn s1_48_no_text_is_too_odd_to_be_read_as_a_stamp(text in any::<String>(), hex in "[0-9a-fA-F+é]{22,25}") {
            for text in [text, hex] {
                if let Ok(stamp) = text.parse::<Versionstamp>() {
                    prop_assert_eq!(stamp.to_string(), text.to_lowercase());
                }
                if let Ok(version) = text.parse::<TransactionVersion>() {
                    prop_assert_eq!(BigUint::from(version.get()), text.parse::<BigUint>().expect("digits"));
                }
            }
        }
    }

    #[test]
    fn s1_12_a_user_version_carries_into_the_transaction_version() {
        assert_eq!(stamp(1, u16::MAX).checked_add(1), Some(stamp(2, 0)));
        assert_eq!(stamp(2, 0).checked_sub(1), Some(stamp(1, u16::MAX)));
        assert_eq!(stamp(u128::from(u64::MAX), u16::MAX).checked_add(1), Some(stamp(1 << 64, 0)));
        assert_eq!(Versionstamp::MAX.checked_add(1), None);
        assert_eq!(Versionstamp::ZERO.checked_sub(1), None);
        assert_eq!(Versionstamp::MAX.checked_add(u128::MAX), None);
        assert_eq!(Versionstamp::ZERO.checked_add((1 << 96) - 1), Some(Versionstamp::MAX));
    }

    #[test]
    fn s1_8_a_transaction_version_has_80_bits() {
        assert_eq!(TransactionVersion::new(1 << 80), None);
        assert_eq!(TransactionVersion::new((1 << 80) - 1), Some(TransactionVersion::MAX));
        assert_eq!(TransactionVersion::MAX.to_string(), "1208925819614629174706175");
        assert_eq!(Versionstamp::new(TransactionVersion::MAX, u16::MAX), Versionstamp::MAX);
        assert_eq!(Versionstamp::MAX.to_string(), "ffffffffffffffffffffffff");
        assert_eq!(Versionstamp::ZERO.to_string(), "000000000000000000000000");
        assert_eq!(stamp(1, 2).to_string(), "000000000000000000010002");
    }

    #[test]
    fn s1_48_a_text_that_is_no_stamp_is_refused_with_the_reason() {
        let read = |text: &str| text.parse::<Versionstamp>();
        assert_eq!(read(""), Err(InvalidVersionstamp::Length(0)));
        assert_eq!(read("00000000000000000001000"), Err(InvalidVersionstamp::Length(23)));
        assert_eq!(read("0000000000000000000100000"), Err(InvalidVersionstamp::Length(25)));
        assert_eq!(read("00000000000000000001000g"), Err(InvalidVersionstamp::Digit('g')));
        assert_eq!(read("+00000000000000000010000"), Err(InvalidVersionstamp::Digit('+')));
        assert_eq!(read("0000000000000000000100é"), Err(InvalidVersionstamp::Digit('é')));
        assert!(serde_json::from_str::<Versionstamp>("5").is_err());
        for text in ["", "-1", "+1", " 1", "1.0", "0x1", "1208925819614629174706176", "٣", &"9".repeat(60)] {
            assert_eq!(text.parse::<TransactionVersion>(), Err(InvalidVersionstamp::Number), "{text}");
        }
        assert_eq!("007".parse(), Ok(TransactionVersion::new(7).expect("small")));
    }
}
