//! JSON compared as a value, with numbers of any length compared exactly.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::value::RawValue;

#[derive(Debug, PartialEq, Eq)]
pub enum Exact {
    Word(String),
    Text(String),
    /// Digits without zeros around them, the power of ten they are multiplied with, and the sign.
    Number(String, i64, bool),
    Array(Vec<Exact>),
    Object(BTreeMap<String, Exact>),
}

impl Exact {
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        Ok(match text.as_bytes().first().context("no JSON")? {
            b'{' => {
                let members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text)?;
                let members = members.into_iter().map(|(name, value)| Ok((name, Self::parse(value.get())?)));
                Self::Object(members.collect::<Result<_>>()?)
            }
            b'[' => {
                let items: Vec<Box<RawValue>> = serde_json::from_str(text)?;
                Self::Array(items.iter().map(|item| Self::parse(item.get())).collect::<Result<_>>()?)
            }
            b'"' => Self::Text(serde_json::from_str(text)?),
            b't' | b'f' | b'n' => Self::Word(text.to_owned()),
            _ => Self::number(text)?,
        })
    }

    fn number(text: &str) -> Result<Self> {
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let is_negative = whole.starts_with('-');
        let digits = format!("{}{fraction}", whole.trim_start_matches('-'));
        let significant = digits.trim_start_matches('0').trim_end_matches('0');
        if significant.is_empty() {
            return Ok(Self::Number("0".into(), 0, false));
        }
        let trailing = digits.len() - digits.trim_end_matches('0').len();
        let power = exponent.parse::<i64>()? - i64::try_from(fraction.len())? + i64::try_from(trailing)?;
        Ok(Self::Number(significant.into(), power, is_negative))
    }
}

#[test]
fn numbers_are_equal_only_when_they_are() -> Result<()> {
    for (one, other) in [("1.0e2", "100"), ("-0.0", "0"), ("1e-3", "0.0010"), ("12300", "1.23E+4")] {
        assert_eq!(Exact::parse(one)?, Exact::parse(other)?);
    }
    for (one, other) in [("1", "-1"), ("10", "1"), ("9007199254740993", "9007199254740992"), ("0.1", "0.01")] {
        assert_ne!(Exact::parse(one)?, Exact::parse(other)?);
    }
    Ok(())
}
