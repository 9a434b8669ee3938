//! The reference of all settings, made from the model, and the examples in it.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::environment::variable;
use super::model::{Config, Route, Source, TenantLimit};
use super::shape::{Field, Leaf, Shape, TYPE, Variant};
use super::sink::Sink;

pub(super) const MINIMAL: &str = include_str!("examples/minimal.toml");
pub(super) const FULL: &str = include_str!("examples/full.toml");

/// A commented file to start from.
pub fn example() -> &'static str {
    include_str!("examples/start.toml")
}

const HEAD: &str = "\
# Configuration

`postrider` reads a TOML file and environment variables. `postrider config check` reads them like `postrider run` and
reports everything that is wrong at once, each with its place; `postrider config example` prints a file to start from.

<!-- Made from the comments in crates/postrider-cli/src/config/model.rs by the test `the_reference_is_up_to_date`. -->
";

const RULES: &str = "\
## How it is written

- **Lengths of time** are whole numbers with a unit: `\"500ms\"`, `\"30s\"`, `\"5m\"`, `\"12h\"`, `\"7d\"`.
- **Secrets** are text, or say where they are found: `{ env = \"NAME\" }` or `{ file = \"/run/secrets/name\" }`. A line
  break at the end of such a file is no part of the secret. No secret is ever printed. A file with a secret in it should
  be readable to its owner only (`chmod 600`).
- **Unknown keys** are refused, in the file and in variables, so that no misspelt setting is overlooked.

## Environment variables

Every key has a variable, which overrides the file; without a file the variables are all there is.

- `POSTRIDER__SOURCE__SHOP__LEASE` is `lease` in `[source.shop]`: two underscores between the parts. Capitals do not
  matter.
- `POSTRIDER__SOURCE__MY_SHOP__LEASE` is also `lease` in `[source.my-shop]`, if the file has that name. New names are
  lower-case.
- `POSTRIDER__ROUTE__0__SINK` is `sink` of the first route. New elements go on with the next number.
- A list is separated by commas, or is written as in the file: `orders,payments` or `[\"orders\", \"payments\"]`.
- A secret is the variable's value, or what `{ file = \"…\" }` says there; `POSTRIDER__SOURCE__SHOP__URL__FILE` names the
  file as well, and `…__URL__ENV` another variable.
";

/// The reference, in Markdown.
pub fn reference() -> String {
    format!(
        "{HEAD}\n## The least that works\n\n```toml\n{MINIMAL}```\n\n## Every key in one file\n\n```toml\n{FULL}```\n\n{RULES}{}",
        sections(&model())
    )
}

/// What there is to say of each section.
pub(super) fn sections(shape: &Shape) -> String {
    let mut page = Page(String::new());
    shape.fields().into_iter().for_each(|section| page.section(section));
    page.0
}

/// The shape of the whole configuration, with its keys in the order of the model rather than of the alphabet.
pub fn model() -> Shape {
    let sinks = Sink::one_of_each().into_iter().enumerate().map(|(at, sink)| (at.to_string(), sink));
    let mut source = Source::default();
    source.tenant_limits.tenants.insert("NAME".to_owned(), TenantLimit::default());
    let whole = Config {
        source: [("NAME".to_owned(), source)].into(),
        layout: complete_layout().map(|layout| ("NAME".to_owned(), layout)).into_iter().collect(),
        sink: sinks.collect(),
        route: vec![Route::default()],
        ..Config::default()
    };
    let order = serde_json::to_string(&whole).ok().and_then(|text| serde_json::from_str(&text).ok());
    let mut shape = Shape::of::<Config>();
    sort(&mut shape, &order.unwrap_or_default());
    shape
}

/// A layout with every key, so that their order is known: the one of the example.
fn complete_layout() -> Option<postrider::Layout> {
    #[derive(serde::Deserialize)]
    struct Layouts {
        layout: std::collections::BTreeMap<String, postrider::Layout>,
    }
    let mut example: Layouts = toml::from_str(FULL).ok()?;
    example.layout.pop_first().map(|(_, layout)| layout)
}

/// The keys of a value as they were written, with what is under them.
#[derive(Default)]
struct Order(Vec<(String, Order)>);

impl<'de> Deserialize<'de> for Order {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Keys;
        impl<'de> Visitor<'de> for Keys {
            type Value = Order;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("anything")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Order, A::Error> {
                let mut keys = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    keys.push(entry);
                }
                Ok(Order(keys))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Order, A::Error> {
                let first = list.next_element()?;
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(first.unwrap_or_default())
            }

            fn visit_bool<E>(self, _: bool) -> Result<Order, E> {
                Ok(Order::default())
            }

            fn visit_i64<E>(self, _: i64) -> Result<Order, E> {
                Ok(Order::default())
            }

            fn visit_u64<E>(self, _: u64) -> Result<Order, E> {
                Ok(Order::default())
            }

            fn visit_f64<E>(self, _: f64) -> Result<Order, E> {
                Ok(Order::default())
            }

            fn visit_str<E>(self, _: &str) -> Result<Order, E> {
                Ok(Order::default())
            }

            fn visit_unit<E>(self) -> Result<Order, E> {
                Ok(Order::default())
            }
        }
        deserializer.deserialize_any(Keys)
    }
}

fn sort(shape: &mut Shape, order: &Order) {
    match shape {
        Shape::Section(fields) => sort_fields(fields, order),
        Shape::List(inner) => sort(inner, order),
        Shape::Named(inner) => match &mut **inner {
            // There is one of each, in the order of the variants.
            Shape::Typed(variants) => {
                for (variant, (_, order)) in variants.iter_mut().zip(&order.0) {
                    sort_fields(&mut variant.fields, order);
                }
            }
            inner => order.0.iter().take(1).for_each(|(_, order)| sort(inner, order)),
        },
        Shape::Typed(_) | Shape::TextOr(_) | Shape::Leaf(_) => {}
    }
}

fn sort_fields(fields: &mut [Field], order: &Order) {
    fields.sort_by_key(|field| order.0.iter().position(|(key, _)| *key == field.name).unwrap_or(usize::MAX));
    for field in fields {
        if let Some((_, order)) = order.0.iter().find(|(key, _)| *key == field.name) {
            sort(&mut field.shape, order);
        }
    }
}

struct Page(String);

impl Page {
    fn add(&mut self, text: &str) {
        self.0.push_str(text);
    }

    /// A section of the file; `path` is what its keys begin with.
    fn section(&mut self, section: &Field) {
        let name = section.name.clone();
        match &section.shape {
            Shape::Named(inner) => {
                self.heading(&format!("[{name}.NAME]"), &section.about);
                self.inside(inner, &[name, "NAME".to_owned()]);
            }
            Shape::List(inner) => {
                self.heading(&format!("[[{name}]]"), &section.about);
                self.inside(inner, &[name, "0".to_owned()]);
            }
            shape => {
                self.heading(&format!("[{name}]"), &section.about);
                self.inside(shape, &[name]);
            }
        }
    }

    fn heading(&mut self, title: &str, about: &str) {
        self.add(&format!("\n## `{title}`\n\n{about}\n"));
    }

    fn inside(&mut self, shape: &Shape, path: &[String]) {
        match shape {
            Shape::Section(fields) => fields.iter().for_each(|field| self.field(field, path)),
            Shape::Typed(variants) => self.variants(variants, path),
            _ => {}
        }
    }

    fn variants(&mut self, variants: &[Variant], path: &[String]) {
        let words = variants.iter().map(|variant| (variant.name.clone(), variant.about.clone())).collect();
        let kind = Field {
            name: TYPE.to_owned(),
            about: "What it is. The other keys depend on it.".to_owned(),
            default: None,
            needed: true,
            shape: Shape::Leaf(Leaf::Word(words)),
        };
        self.field(&kind, path);
        for variant in variants.iter().filter(|variant| !variant.fields.is_empty()) {
            let title = format!("[{}] with type = \"{}\"", path.join("."), variant.name);
            match path.len() {
                ..=2 => self.heading(&title, &variant.about),
                // Within a sink's settings, what follows still belongs to the sink.
                _ => self.add(&format!("\n**`{title}`**: {}\n", variant.about)),
            }
            variant.fields.iter().for_each(|field| self.field(field, path));
        }
    }

    fn field(&mut self, field: &Field, path: &[String]) {
        let path: Vec<String> = path.iter().chain([&field.name]).cloned().collect();
        // The full path, so that every heading can be linked to.
        let title = path.iter().filter(|step| *step != "0").cloned().collect::<Vec<_>>().join(".");
        self.add(&format!("\n### `{title}`\n\n{}\n", field.about));
        if let Shape::Leaf(Leaf::Word(words)) = &field.shape {
            self.add("\n");
            words.iter().for_each(|(word, about)| self.add(&format!("- `\"{word}\"`: {about}\n")));
        }
        let presence = match (&field.default, &field.shape) {
            _ if field.needed => ", needed".to_owned(),
            (_, Shape::Section(_)) => String::new(),
            (Some(default), _) => format!(", default `{default}`"),
            (None, _) => ", not set by default".to_owned(),
        };
        self.add(&format!("\n{}{presence} · `{}`\n", kind(&field.shape), variable(&path)));
        match &field.shape {
            Shape::Named(inner) if matches!(**inner, Shape::Section(_)) => {
                self.inside(inner, &[path, vec!["NAME".to_owned()]].concat());
            }
            Shape::Named(inner) => self.inside(inner, &path),
            shape => self.inside(shape, &path),
        }
    }
}

fn kind(shape: &Shape) -> String {
    match shape {
        Shape::Leaf(leaf) => leaf_kind(leaf).to_owned(),
        Shape::List(inner) => format!("List of {}", kind(inner).to_lowercase()),
        Shape::Named(inner) => format!("Table of {}", kind(inner).to_lowercase()),
        Shape::TextOr(_) => "Text or table".to_owned(),
        Shape::Section(_) | Shape::Typed(_) => "Table".to_owned(),
    }
}

fn leaf_kind(leaf: &Leaf) -> &'static str {
    match leaf {
        Leaf::Text | Leaf::Any => "Text",
        Leaf::Duration => "Length of time",
        Leaf::Secret => "Secret",
        Leaf::Integer => "Whole number",
        Leaf::Number => "Number",
        Leaf::Boolean => "True or false",
        Leaf::Word(_) => "One of these words",
    }
}
