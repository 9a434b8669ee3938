//! What a message looks like in AMQP: properties, a table of headers, a body.
//!
//! Names of headers, routing keys and most properties are short strings of at most 255 bytes. A property that does not
//! fit is left out, because all of them are among the headers too, whose values may be of any length. The properties with
//! all headers must fit into one frame: a larger one would make the broker close the connection.

use std::borrow::Cow;

use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};
use postrider_core::{ClaimedMessage, Destination};

use super::config::AmqpConfig;
use crate::format::Form;
use crate::wire::Attributes;

/// The most bytes of a name.
pub(super) const LONGEST_NAME: usize = 255;
/// The prefix of CloudEvents attributes in headers, by the AMQP binding.
pub(super) const CLOUDEVENTS: &str = "cloudEvents_";
/// Names under which a producer may give the id of what an event answers to.
const CORRELATION: [&str; 2] = ["correlation-id", "correlation_id"];
/// More than all properties but the headers can take.
const PROPERTIES: usize = 8 * (LONGEST_NAME + 1) + 128;
const PERSISTENT: u8 = 2;
const TRANSIENT: u8 = 1;

/// A message that is ready to be sent.
pub(super) struct Written<'a> {
    pub(super) routing_key: ShortString,
    pub(super) properties: BasicProperties,
    pub(super) body: Cow<'a, [u8]>,
    /// At least as many bytes as the properties take.
    pub(super) properties_size: usize,
}

/// Whether something can be a routing key; the error says what is wrong.
pub(super) fn check_routing_key(key: &str, exchange: &str) -> Result<(), String> {
    if key.len() > LONGEST_NAME {
        return Err(format!("its routing key is longer than {LONGEST_NAME} bytes"));
    }
    // On the default exchange these lead to whoever waits for a reply, and not to a queue.
    if exchange.is_empty() && key.starts_with("amq.") {
        return Err("its routing key begins with amq., which names the broker's own queues".into());
    }
    Ok(())
}

/// Writes a message, or says why it can never be sent.
pub(super) fn write<'a>(
    message: &'a ClaimedMessage,
    destination: &Destination,
    form: &Form,
    config: &AmqpConfig,
) -> Result<Written<'a>, String> {
    let key = destination.of(message, |value| Ok(Cow::Owned(value.to_owned())))?;
    check_routing_key(&key, &config.exchange)?;
    let content = form.content(message)?;
    if content.body.len() > config.max_message_size {
        return Err(format!(
            "its body has {} bytes, and the sink's max_message_size is {}",
            content.body.len(),
            config.max_message_size
        ));
    }
    let mut table = FieldTable::default();
    let mut size = PROPERTIES;
    for (name, value) in &content.headers {
        let name = ShortString::try_new(name.as_ref())
            .map_err(|_| format!("the name of one of its headers is longer than {LONGEST_NAME} bytes"))?;
        size += name.as_str().len() + value.len() + 6;
        table.insert(name, AMQPValue::LongString(LongString::from(value.as_bytes())));
    }
    let attributes = Attributes::of(message);
    let short = |text: &str| ShortString::try_new(text).ok();
    let seconds = u64::try_from(message.created_at_micros / 1_000_000).unwrap_or_default();
    let mut properties = BasicProperties::default()
        .with_message_id(short(&message.id.to_string()).unwrap_or_default())
        .with_delivery_mode(if config.persistent { PERSISTENT } else { TRANSIENT })
        .with_timestamp(seconds)
        .with_headers(table);
    if let Some(content_type) = short(&content.content_type) {
        properties = properties.with_content_type(content_type);
    }
    if let Some(event_type) = short(attributes.event_type) {
        properties = properties.with_type(event_type);
    }
    if let Some(app) = short(&config.app_id).filter(|app| !app.as_str().is_empty()) {
        properties = properties.with_app_id(app);
    }
    let correlation = CORRELATION.iter().find_map(|name| message.headers.get(*name));
    if let Some(correlation) = correlation.and_then(|text| short(text)) {
        properties = properties.with_correlation_id(correlation);
    }
    let routing_key = short(&key).unwrap_or_default();
    Ok(Written { routing_key, properties, body: content.body, properties_size: size })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Format;
    use postrider_core::{Lease, Payload, RowAddress};
    use uuid::Uuid;

    fn message() -> ClaimedMessage {
        let lease = Lease { id: Uuid::now_v7(), worker: Uuid::nil(), attempt: 1, address: RowAddress::default() };
        let mut message = ClaimedMessage::new(lease, "n".into(), "t".into(), Payload::Json("{}".into()));
        message.created_at_micros = 1_700_000_000_123_456;
        message
    }

    fn written(message: &ClaimedMessage, config: &AmqpConfig) -> Result<BasicProperties, String> {
        let form = Form::new(Format::Plain, "/x", CLOUDEVENTS).expect("a form");
        let destination = "orders.{topic}".parse().expect("a destination");
        write(message, &destination, &form, config).map(|written| written.properties)
    }

    #[test]
    fn properties_say_what_the_message_is() {
        let mut message = message();
        message.headers.insert("correlation-id".into(), "c-1".into());
        let properties = written(&message, &AmqpConfig::default()).expect("written");
        let text = |value: &Option<ShortString>| value.as_ref().map(|text| text.as_str().to_owned());
        assert_eq!(text(properties.message_id()), Some(message.id.to_string()));
        assert_eq!(text(properties.content_type()).as_deref(), Some("application/json"));
        assert_eq!(text(properties.kind()).as_deref(), Some("t"));
        assert_eq!(text(properties.correlation_id()).as_deref(), Some("c-1"));
        assert_eq!(text(properties.app_id()).as_deref(), Some("postrider"));
        assert_eq!((*properties.delivery_mode(), *properties.timestamp()), (Some(2), Some(1_700_000_000)));
        let transient = AmqpConfig { persistent: false, ..AmqpConfig::default() };
        assert_eq!(*written(&message, &transient).expect("written").delivery_mode(), Some(1));
    }

    #[test]
    fn what_is_too_long_is_left_to_the_headers_or_refused() {
        let mut long = message();
        long.headers.insert("event-type".into(), "x".repeat(300));
        let properties = written(&long, &AmqpConfig::default()).expect("written");
        assert_eq!(*properties.kind(), None);
        let headers = properties.headers().as_ref().expect("headers").inner().clone();
        assert_eq!(headers.get("event_type"), Some(&AMQPValue::LongString("x".repeat(300).into())));

        let mut name = message();
        name.headers.insert("x".repeat(256), "v".into());
        assert!(written(&name, &AmqpConfig::default()).expect_err("too long").contains("255 bytes"));
        let mut topic = message();
        topic.topic = "ä".repeat(128);
        assert!(written(&topic, &AmqpConfig::default()).expect_err("too long").contains("routing key"));
        let small = AmqpConfig { max_message_size: 1, ..AmqpConfig::default() };
        assert!(written(&message(), &small).expect_err("too large").contains("max_message_size"));
    }
}
