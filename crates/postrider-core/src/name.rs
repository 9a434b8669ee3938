//! Namespaces and topics: the address of a message.
//!
//! A name is compared byte for byte, goes onto every wire and into metrics labels, so it is kept plain:
//! ASCII letters, digits and `. _ - : /`, at most [`MAX_LENGTH`] bytes. Names are always bound as
//! parameters and never become part of SQL text; identifiers that do are checked in the store crate.

use crate::message::InvalidMessage;

/// The longest namespace or topic, in bytes.
pub const MAX_LENGTH: usize = 200;

/// Checks a namespace or topic; `what` names it in the error.
pub fn check(what: &'static str, name: &str) -> Result<(), InvalidMessage> {
    if name.is_empty() {
        return Err(InvalidMessage::Empty { what });
    }
    if name.len() > MAX_LENGTH {
        return Err(InvalidMessage::TooLong { what, length: name.len(), limit: MAX_LENGTH });
    }
    match name.chars().find(|c| !is_allowed(*c)) {
        Some(found) => Err(InvalidMessage::BadCharacter { what, found }),
        None => Ok(()),
    }
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':' | '/')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn s01_s25_a_name_is_what_its_rule_says_and_nothing_else(
            name in prop_oneof!["[a-zA-Z0-9._:/-]{0,210}", "[ -~]{0,6}", ".{0,30}", "[a-z]{0,5}.[a-z]{0,5}"],
        ) {
            let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-:/".contains(&byte));
            prop_assert_eq!(check("topic", &name).is_ok(), plain && (1..=MAX_LENGTH).contains(&name.len()));
        }
    }

    #[test]
    fn plain_names_pass() {
        for name in ["shop", "mini-chat", "usage.finalized", "a/b:c_d", &"x".repeat(MAX_LENGTH)] {
            assert!(check("topic", name).is_ok(), "{name}");
        }
    }

    #[test]
    fn everything_else_is_refused_and_named() {
        for name in ["", "a b", "a\0b", "naïve", "a'b", "a;b", "a\n", "a\"b", &"x".repeat(MAX_LENGTH + 1)] {
            let error = check("topic", name).expect_err(name);
            assert!(error.to_string().contains("topic"), "{error}");
        }
    }
}
