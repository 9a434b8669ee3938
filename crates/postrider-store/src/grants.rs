//! Who may do what with an outbox: the least privileges of its roles, as SQL text for a database's owner to run.

/// The longest name of a role that every server takes: MySQL's limit for the part before the host.
const LONGEST_NAME: usize = 32;
/// The longest host of an account, MySQL's limit.
const LONGEST_HOST: usize = 255;

/// The roles of an outbox. On MySQL an account may be followed by its host, as in `relay@10.0.0.%`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roles {
    producer: String,
    relay: String,
    operator: String,
    reader: Option<String>,
}

impl Roles {
    /// Checks the names: of the application that enqueues, of `postrider run`, and of who looks, replays and purges.
    pub fn new(producer: &str, relay: &str, operator: &str) -> Result<Self, InvalidRole> {
        for (what, role) in [("producer", producer), ("relay", relay), ("operator", operator)] {
            check(what, role)?;
        }
        Ok(Self { producer: producer.into(), relay: relay.into(), operator: operator.into(), reader: None })
    }

    /// With a role that looks at states and errors, at no payload, and changes nothing.
    pub fn with_reader(mut self, reader: &str) -> Result<Self, InvalidRole> {
        check("reader", reader)?;
        self.reader = Some(reader.into());
        Ok(self)
    }

    /// The application that enqueues.
    pub fn producer(&self) -> &str {
        &self.producer
    }

    /// What `postrider run` logs in as.
    pub fn relay(&self) -> &str {
        &self.relay
    }

    /// Who looks, replays, purges and asks the doctor.
    pub fn operator(&self) -> &str {
        &self.operator
    }

    /// Who looks only, if there is such a role.
    pub fn reader(&self) -> Option<&str> {
        self.reader.as_deref()
    }

    /// The roles as values for a template, each quoted.
    #[cfg_attr(not(any(feature = "postgres", feature = "mysql")), allow(dead_code))]
    pub(crate) fn quoted(&self, quote: impl Fn(&str) -> String) -> [(&'static str, String); 3] {
        [("{producer}", quote(&self.producer)), ("{relay}", quote(&self.relay)), ("{operator}", quote(&self.operator))]
    }
}

/// A role's name was refused; it has not been near any SQL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum InvalidRole {
    #[error("the {what} role's name is empty; give it at least one character")]
    Empty { what: &'static str },
    #[error(
        "the {what} role's name holds {found:?}; use ASCII letters, digits and . _ - (and @host on MySQL, with % in it)"
    )]
    BadCharacter { what: &'static str, found: char },
    #[error(
        "the {what} role's name is longer than {LONGEST_NAME} characters, or its host longer than {LONGEST_HOST}; shorten it"
    )]
    TooLong { what: &'static str },
}

fn check(what: &'static str, role: &str) -> Result<(), InvalidRole> {
    let (name, host) = role.split_once('@').unwrap_or((role, "%"));
    if name.is_empty() || host.is_empty() {
        return Err(InvalidRole::Empty { what });
    }
    let bad = |text: &str, more: &str| text.chars().find(|c| !(c.is_ascii_alphanumeric() || more.contains(*c)));
    if let Some(found) = bad(name, "._-").or_else(|| bad(host, "._-%:")) {
        return Err(InvalidRole::BadCharacter { what, found });
    }
    match name.len() > LONGEST_NAME || host.len() > LONGEST_HOST {
        true => Err(InvalidRole::TooLong { what }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s23_nothing_that_could_leave_its_quotes_is_a_role() {
        assert!(Roles::new("app", "relay-1", "ops@10.0.0.%").is_ok());
        for bad in ["", "a b", "a\"b", "a`b", "a'b", "a;b", "a\\b", "ä", "a\0", "@host", "a@", "a@b@c", "a@h'x", "a\n"]
        {
            let reader = Roles::new("p", "r", "o").and_then(|roles| roles.with_reader(bad));
            for roles in [Roles::new(bad, "r", "o"), Roles::new("p", bad, "o"), Roles::new("p", "r", bad), reader] {
                assert!(roles.is_err(), "{bad:?} was accepted");
            }
        }
        assert_eq!(Roles::new("p", &"r".repeat(33), "o"), Err(InvalidRole::TooLong { what: "relay" }));
    }
}
