//! What a consumer was handed: which event, for which consumer, and which attempt of the relay it is.

use std::fmt;
use std::sync::Arc;

use postrider_core::message::InvalidMessage;
use postrider_core::name;
use uuid::Uuid;

/// The name of a consumer: all its processes share one, and each consumer handles every event for itself.
///
/// It is part of keys in Redis and of a primary key in SQL, so it is as plain as a topic: ASCII letters, digits and
/// `. _ - : /`, at most [`name::MAX_LENGTH`] bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConsumerName(Arc<str>);

impl ConsumerName {
    /// Checks a name.
    pub fn new(name: &str) -> Result<Self, InvalidDelivery> {
        name::check("consumer", name).map_err(InvalidDelivery::Consumer)?;
        Ok(Self(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ConsumerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for ConsumerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Which attempt of the relay a delivery is. A replay by an operator counts attempts anew, so an attempt after a replay is
/// newer than any before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Attempt {
    /// How often the message was replayed.
    pub replayed: u32,
    /// The number of the attempt since then, from 1.
    pub number: u32,
}

impl fmt::Display for Attempt {
    /// `<replayed>.<number>`, as inboxes keep it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.replayed, self.number)
    }
}

impl std::str::FromStr for Attempt {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (replayed, number) = text.split_once('.').unwrap_or(("0", text));
        Ok(Self { replayed: replayed.parse()?, number: number.parse()? })
    }
}

/// One arrival of one event at one consumer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Delivery {
    /// Who handles it.
    pub consumer: ConsumerName,
    /// The event id, the same on every arrival.
    pub event: Uuid,
    /// Which attempt of the relay it is. If given, the arrival of an older attempt than the newest that was seen is
    /// [`Stale`](crate::Entry::Stale).
    pub attempt: Option<Attempt>,
}

impl Delivery {
    /// A delivery without the number of its attempt.
    pub fn new(consumer: ConsumerName, event: Uuid) -> Self {
        Self { consumer, event, attempt: None }
    }

    /// Says which attempt of the relay it is, so that an older one that comes late is refused.
    pub fn with_attempt(mut self, attempt: Attempt) -> Self {
        self.attempt = Some(attempt);
        self
    }

    /// Reads what the relay has written into headers, attributes or properties; `header` looks one up by its name. The
    /// attempt is not taken over: [`Self::read_with_attempt`] does that.
    pub fn read<'a>(
        consumer: &ConsumerName,
        wire: Wire,
        header: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<Self, InvalidDelivery> {
        let text = wire.event_ids().iter().find_map(|name| header(name)).ok_or(InvalidDelivery::NoEventId)?;
        let event = text.parse().map_err(|_| InvalidDelivery::BadEventId)?;
        Ok(Self::new(consumer.clone(), event))
    }

    /// The same, with the number of the attempt if the message has one.
    ///
    /// A webhook's signature covers its id, its time and its body, but not the header with the attempt. Somebody who can
    /// send a captured request again, within the time that signatures are accepted, can write a high attempt into it and so
    /// make the event's true deliveries [`Stale`](crate::Entry::Stale). Use it over HTTP only where nobody can do that.
    pub fn read_with_attempt<'a>(
        consumer: &ConsumerName,
        wire: Wire,
        header: impl Fn(&str) -> Option<&'a str>,
    ) -> Result<Self, InvalidDelivery> {
        let delivery = Self::read(consumer, wire, &header)?;
        let number = |name| wire.prefixes().iter().find_map(|prefix| header(&format!("{prefix}{name}"))?.parse().ok());
        let Some(attempt) = number("attempt") else { return Ok(delivery) };
        Ok(delivery.with_attempt(Attempt { replayed: number("replayed").unwrap_or(0), number: attempt }))
    }
}

/// What a message came over. Each has names that the relay keeps for itself; a name from the other could be a producer's
/// own header, which is not to be trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Wire {
    /// Kafka, Pub/Sub, NATS, AMQP, Redis, SQS and SNS, in every format.
    Broker,
    /// A webhook. One in structured CloudEvents without a signature has its id in the body only.
    Http,
}

impl Wire {
    fn event_ids(self) -> &'static [&'static str] {
        match self {
            Self::Broker => &["event_id"],
            Self::Http => &["webhook-id", "postrider-event-id", "ce-id"],
        }
    }

    /// What the names of the other attributes begin with.
    fn prefixes(self) -> &'static [&'static str] {
        match self {
            Self::Broker => &[""],
            Self::Http => &["postrider-", "ce-"],
        }
    }
}

/// What was handed over cannot be told from others, so it cannot be handled once.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum InvalidDelivery {
    #[error("the name of the consumer is not acceptable")]
    Consumer(#[source] InvalidMessage),
    #[error("the message has no event id; it did not come from Postrider, or its headers were lost on the way")]
    NoEventId,
    #[error("the message's event id is not a UUID; it did not come from Postrider")]
    BadEventId,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mailer() -> ConsumerName {
        ConsumerName::new("mailer").expect("a plain name")
    }

    #[test]
    fn a_consumer_s_name_is_plain() {
        for name in ["mailer", "shop/mailer:2"] {
            assert!(ConsumerName::new(name).is_ok(), "{name}");
        }
        for name in ["", "a b", "{a}", "a\0", "naïve", &"x".repeat(name::MAX_LENGTH + 1)] {
            assert!(ConsumerName::new(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_replay_is_newer_than_every_attempt_before_it() {
        let attempt = |replayed, number| Attempt { replayed, number };
        assert!(attempt(1, 1) > attempt(0, 20) && attempt(0, 2) > attempt(0, 1));
        for one in [attempt(0, 1), attempt(3, 20)] {
            assert_eq!(one.to_string().parse(), Ok(one));
        }
        assert_eq!("7".parse(), Ok(attempt(0, 7)));
    }

    #[test]
    fn an_event_is_found_in_what_every_sink_writes() {
        let id = Uuid::now_v7();
        let text = id.to_string();
        for (wire, names) in [
            (Wire::Broker, ["event_id", "attempt", "replayed"]),
            (Wire::Http, ["ce-id", "ce-attempt", "ce-replayed"]),
            (Wire::Http, ["postrider-event-id", "postrider-attempt", "postrider-replayed"]),
            (Wire::Http, ["webhook-id", "postrider-attempt", "postrider-replayed"]),
        ] {
            let header = |name: &str| match names.iter().position(|known| *known == name)? {
                0 => Some(text.as_str()),
                _ => Some("2"),
            };
            let delivery = Delivery::read_with_attempt(&mailer(), wire, header).expect("it is there");
            assert_eq!((delivery.event, delivery.attempt), (id, Some(Attempt { replayed: 2, number: 2 })), "{names:?}");
            assert_eq!(Delivery::read(&mailer(), wire, header).expect("it is there").attempt, None);
        }
    }

    #[test]
    fn a_producer_s_own_header_is_not_taken_for_the_relay_s() {
        let (ours, theirs) = (Uuid::now_v7().to_string(), Uuid::now_v7().to_string());
        let header = |name: &str| match name {
            "event_id" | "attempt" => Some(theirs.as_str()),
            "webhook-id" => Some(ours.as_str()),
            _ => None,
        };
        let delivery = Delivery::read_with_attempt(&mailer(), Wire::Http, header).expect("it is there");
        assert_eq!((delivery.event.to_string(), delivery.attempt), (ours.clone(), None));
    }

    #[test]
    fn a_message_without_an_event_id_is_refused() {
        for wire in [Wire::Broker, Wire::Http] {
            assert_eq!(Delivery::read(&mailer(), wire, |_| None), Err(InvalidDelivery::NoEventId));
            assert_eq!(Delivery::read(&mailer(), wire, |_| Some("7")), Err(InvalidDelivery::BadEventId));
        }
    }
}
