//! Names of topics: `projects/<project>/topics/<topic>`, or the topic alone in the project of the settings. The project is
//! always the operator's; data can only be in the last part, and only with characters that are allowed there.

use std::borrow::Cow;

use postrider_core::{ClaimedMessage, Destination};

use crate::problem::ConfigProblem;

const LONGEST: usize = 255;
const SHORTEST: usize = 3;
const LONGEST_PROJECT: usize = 128;

/// The topics of a route.
#[derive(Debug, Clone)]
pub(super) struct Topics {
    destination: Destination,
    /// What goes before the destination to make it a full name.
    before: String,
    project: String,
}

impl Topics {
    /// Checks a destination; `project` is for those that do not name one, and may be empty if all do.
    pub(super) fn new(project: &str, destination: &Destination) -> Result<Self, ConfigProblem> {
        let problem = |what: String| Err(ConfigProblem::new("destination", what));
        let prefix = destination.prefix();
        let (project, before, start) = match full_name(prefix) {
            Some((project, start)) => (project, String::new(), start),
            None if prefix.contains('/') => {
                return problem("it is neither a topic nor projects/<project>/topics/<topic>".into());
            }
            None if project.is_empty() => {
                return problem("it names no project, and neither do the settings; set project".into());
            }
            None => (project, format!("projects/{project}/topics/"), prefix),
        };
        if !is_project(project) {
            return problem("its project is not the id of a project".into());
        }
        let checked = if destination.is_fixed() { check(start) } else { check_start(start) };
        if let Err(why) = checked {
            return problem(why);
        }
        Ok(Self { destination: destination.clone(), before, project: project.to_owned() })
    }

    /// The full name of a message's topic; the error says what is wrong with the message.
    pub(super) fn of(&self, message: &ClaimedMessage) -> Result<String, String> {
        let name = self.destination.of(message, part)?;
        let full = format!("{}{name}", self.before);
        let topic = full_name(&full).map_or("", |(_, topic)| topic);
        check(topic)?;
        Ok(full)
    }

    /// Whether the topic is the same for all messages.
    pub(super) fn is_fixed(&self) -> bool {
        self.destination.is_fixed()
    }

    /// The topic, if it is the same for all messages.
    pub(super) fn fixed(&self) -> Option<String> {
        self.is_fixed().then(|| format!("{}{}", self.before, self.destination.prefix()))
    }

    /// A topic of the project that nobody needs to have made.
    pub(super) fn any(&self) -> String {
        format!("projects/{}/topics/postrider-ready", self.project)
    }
}

fn full_name(name: &str) -> Option<(&str, &str)> {
    let (project, topic) = name.strip_prefix("projects/")?.split_once("/topics/")?;
    (!project.contains('/') && !topic.contains('/')).then_some((project, topic))
}

/// Ids, with the domain before a colon that old ones have, and numbers.
pub(super) fn is_project(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.:".contains(c);
    (1..=LONGEST_PROJECT).contains(&name.len()) && name.chars().all(allowed)
}

fn is_allowed(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.~+%".contains(c)
}

/// A field of the message within the name of a topic.
fn part(value: &str) -> Result<Cow<'_, str>, String> {
    match value.chars().all(is_allowed) {
        true => Ok(Cow::Borrowed(value)),
        false => {
            Err("its topic would have a character that no name of Pub/Sub has; use letters, digits and -_.~+%".into())
        }
    }
}

fn check(topic: &str) -> Result<(), String> {
    check_start(topic)?;
    match (SHORTEST..=LONGEST).contains(&topic.len()) {
        true => Ok(()),
        false => Err(format!("the name of its topic is not from {SHORTEST} to {LONGEST} characters long")),
    }
}

/// The beginning of a name, of which the rest comes from data.
fn check_start(topic: &str) -> Result<(), String> {
    if !topic.chars().all(is_allowed) {
        return Err(
            "the name of its topic has a character that no name of Pub/Sub has; use letters, digits and -_.~+%".into(),
        );
    }
    if topic.starts_with(|c: char| !c.is_ascii_alphabetic()) {
        return Err("the name of its topic does not begin with a letter".into());
    }
    match topic.starts_with("goog") {
        true => Err("the name of its topic begins with goog, which Google keeps for itself".into()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::{Lease, Payload, RowAddress};
    use uuid::Uuid;

    fn topics(project: &str, destination: &str) -> Result<Topics, String> {
        let destination = destination.parse().expect("a destination");
        Topics::new(project, &destination).map_err(|problem| problem.what)
    }

    fn message(topic: &str) -> ClaimedMessage {
        let lease = Lease { id: Uuid::nil(), worker: Uuid::nil(), attempt: 1, address: RowAddress::default() };
        ClaimedMessage::new(lease, "shop".into(), topic.into(), Payload::Json("{}".into()))
    }

    #[test]
    fn a_destination_is_a_topic_of_the_project_or_a_full_name() {
        for (destination, expected) in [
            ("pf-domain-events", "projects/home/topics/pf-domain-events"),
            ("{topic}", "projects/home/topics/order.placed"),
            ("events-{topic}", "projects/home/topics/events-order.placed"),
            ("projects/away-1/topics/events", "projects/away-1/topics/events"),
            ("projects/away-1/topics/events-{namespace}", "projects/away-1/topics/events-shop"),
        ] {
            let topics = topics("home", destination).expect(destination);
            assert_eq!(topics.of(&message("order.placed")).expect(destination), expected);
            assert_eq!(topics.fixed().as_deref(), (!destination.contains('{')).then_some(expected));
        }
        assert!(topics("", "projects/away/topics/events").is_ok());
        assert_eq!(
            topics("home", "projects/away/topics/x{key}").expect("good").any(),
            "projects/away/topics/postrider-ready"
        );
    }

    #[test]
    fn an_operators_name_is_checked_by_the_rules_of_the_service() {
        for wrong in [
            "ab",
            "1abc",
            "goog-events",
            "events/1",
            "a b c",
            "projects/home/topics/x/y",
            "projects//topics/events",
            "projects/home/topics/goog",
            "projects/Home/topics/events",
            "projects/home/subscriptions/events",
            "projects/{namespace}/topics/events",
            "événements",
            "-x{topic}",
            "projects/home/topics/a*{topic}",
        ] {
            assert!(topics("home", wrong).is_err(), "{wrong}");
        }
        assert!(topics("home", &"x".repeat(256)).is_err());
        assert!(topics("", "events").expect_err("no project").contains("set project"));
    }

    #[test]
    fn s21_data_cannot_leave_the_rules_or_the_project() {
        let topics = topics("home", "{topic}").expect("good");
        for wrong in ["", "ab", "goog.x", "1st", "a/b", "../x/y", "a b c", "projects/x/topics/y", "émile", "a\0b"] {
            assert!(topics.of(&message(wrong)).is_err(), "{wrong:?}");
        }
        assert!(topics.of(&message(&"x".repeat(255))).is_ok());
        assert!(topics.of(&message(&"x".repeat(256))).is_err());
    }
}
