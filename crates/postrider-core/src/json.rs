//! What `jsonb` would refuse, found before SQL.
//!
//! The text given here is already well-formed JSON (serde made it). PostgreSQL still refuses some of it, and
//! an error inside the statement would abort the caller's transaction: a NUL in a string, a lone surrogate,
//! nesting beyond its stack, a number beyond `numeric`. One pass over the bytes finds them all.

use crate::message::InvalidMessage;

/// The deepest nesting of arrays and objects that is accepted: what `serde_json` still reads on the other side.
pub const MAX_DEPTH: usize = 127;
/// The longest number, in characters, that is accepted.
pub const MAX_NUMBER_LENGTH: usize = 1_000;
/// The largest exponent of a number that is accepted, in either direction.
pub const MAX_EXPONENT: u32 = 1_000;

/// Checks well-formed JSON text against the limits above.
pub fn check(text: &str) -> Result<(), InvalidMessage> {
    let bytes = text.as_bytes();
    let (mut at, mut depth) = (0, 0_usize);
    while at < bytes.len() {
        match bytes[at] {
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(InvalidMessage::Json { why: "it nests deeper than 127 levels" });
                }
                at += 1;
            }
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                at += 1;
            }
            b'"' => at = check_string(bytes, at + 1)?,
            b'-' | b'0'..=b'9' => at = check_number(bytes, at)?,
            _ => at += 1,
        }
    }
    Ok(())
}

/// Checks a string whose first character is at `at`; answers the position after its closing quote.
fn check_string(bytes: &[u8], mut at: usize) -> Result<usize, InvalidMessage> {
    let mut high_surrogate = false;
    while at < bytes.len() {
        let unit = match (bytes[at], bytes.get(at + 1)) {
            (b'"', _) => break,
            (b'\\', Some(b'u')) => {
                let unit = hex_unit(bytes, at + 2);
                at += 6;
                unit
            }
            (b'\\', _) => {
                at += 2;
                None
            }
            _ => {
                at += 1;
                None
            }
        };
        match (high_surrogate, unit) {
            (false, Some(0)) => return Err(InvalidMessage::Json { why: "a string in it holds the NUL character" }),
            (false, Some(0xD800..=0xDBFF)) => high_surrogate = true,
            (true, Some(0xDC00..=0xDFFF)) => high_surrogate = false,
            (true, _) | (false, Some(0xDC00..=0xDFFF)) => return Err(lone_surrogate()),
            (false, _) => {}
        }
    }
    if high_surrogate { Err(lone_surrogate()) } else { Ok(at + 1) }
}

fn lone_surrogate() -> InvalidMessage {
    InvalidMessage::Json { why: "a string in it holds half of a surrogate pair" }
}

fn hex_unit(bytes: &[u8], at: usize) -> Option<u16> {
    let digits = std::str::from_utf8(bytes.get(at..at + 4)?).ok()?;
    u16::from_str_radix(digits, 16).ok()
}

/// Checks the number that begins at `at`; answers the position after it.
fn check_number(bytes: &[u8], at: usize) -> Result<usize, InvalidMessage> {
    let length = bytes[at..].iter().take_while(|b| matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')).count();
    let number = &bytes[at..at + length];
    let exponent = number.iter().position(|b| matches!(b, b'e' | b'E')).map_or(&[][..], |e| &number[e + 1..]);
    let magnitude = exponent
        .iter()
        .filter(|b| b.is_ascii_digit())
        .fold(0_u32, |sum, b| sum.saturating_mul(10).saturating_add(u32::from(b - b'0')));
    if length > MAX_NUMBER_LENGTH || magnitude > MAX_EXPONENT {
        return Err(InvalidMessage::Json { why: "a number in it has over 1000 digits or an exponent beyond 1000" });
    }
    Ok(at + length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_json_passes() {
        for text in [
            r#"{"b":1,"a":1,"n":1.0e2,"big":123456789012345678901234567890}"#,
            r#"["\ud83d\ude00", "\\u0000", "\"", -0.5e-7, true, null]"#,
            r#""[[[[ 1e9999 in a string""#,
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn the_deepest_json_that_is_accepted_can_be_read_again() {
        let deepest = format!("{}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
        assert_eq!(check(&deepest), Ok(()));
        assert!(serde_json::from_str::<serde_json::Value>(&deepest).is_ok());
    }

    #[test]
    fn what_jsonb_refuses_is_found_first() {
        let deep = format!("{}{}", "[".repeat(128), "]".repeat(128));
        let long = "9".repeat(1_001);
        for text in [
            r#""\u0000""#,
            r#"{"\u0000":1}"#,
            r#""\ud800""#,
            r#""\ud800x""#,
            r#""\udc00""#,
            r#""\ud800\ud800""#,
            "1e1001",
            "[1E-99999999999]",
            &deep,
            &long,
        ] {
            assert!(check(text).is_err(), "{text}");
        }
    }
}
