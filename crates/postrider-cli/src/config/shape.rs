//! What a configuration may hold, taken from the model's JSON schema. Environment variables, unknown keys and the
//! reference all go by it, so that a new setting is written down once: in the model.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value as Json;

/// What a value may be.
#[derive(Debug, Clone)]
pub enum Shape {
    /// A table with known keys.
    Section(Vec<Field>),
    /// A table whose known keys depend on its `type`.
    Typed(Vec<Variant>),
    /// A table whose keys are names of the operator's choice.
    Named(Box<Shape>),
    /// A list.
    List(Box<Shape>),
    /// Text, or a table with known keys where there is more to say.
    TextOr(Vec<Field>),
    /// A single value.
    Leaf(Leaf),
}

/// What a single value may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leaf {
    /// Text.
    Text,
    /// A length of time with its unit.
    Duration,
    /// A secret, or where it is found.
    Secret,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// True or false.
    Boolean,
    /// One of some words, each with what it means.
    Word(Vec<(String, String)>),
    /// Anything: the type itself decides.
    Any,
}

/// A known key.
#[derive(Debug, Clone)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub about: String,
    /// What it is unless given.
    pub default: Option<Json>,
    /// Whether it must be given.
    pub needed: bool,
    /// What it may hold.
    pub shape: Shape,
}

/// One type of a table that has a `type`.
#[derive(Debug, Clone)]
pub struct Variant {
    /// What `type` says.
    pub name: String,
    /// What it is for.
    pub about: String,
    /// Its keys, without `type`.
    pub fields: Vec<Field>,
}

/// The key that says the type of a table.
pub const TYPE: &str = "type";

impl Shape {
    /// The shape of a type.
    pub fn of<T: JsonSchema>() -> Self {
        let generator = SchemaSettings::default().with(|settings| settings.inline_subschemas = true).into_generator();
        shape(generator.into_root_schema_for::<T>().as_value())
    }

    /// The known keys of a table, of all its types if it has a `type`.
    pub fn fields(&self) -> Vec<&Field> {
        match self {
            Self::Section(fields) | Self::TextOr(fields) => fields.iter().collect(),
            Self::Typed(variants) => variants.iter().flat_map(|variant| &variant.fields).collect(),
            _ => Vec::new(),
        }
    }
}

fn shape(schema: &Json) -> Shape {
    let variants = schema["oneOf"].as_array().or(schema["anyOf"].as_array());
    if let Some(variants) = variants {
        return one_of(&variants.iter().filter(|variant| variant["type"] != "null").collect::<Vec<_>>());
    }
    if let Some(words) = schema["enum"].as_array() {
        let words = words.iter().filter_map(Json::as_str).map(|word| (word.to_owned(), String::new()));
        return Shape::Leaf(Leaf::Word(words.collect()));
    }
    match kind(schema) {
        "object" if schema["properties"].is_object() => Shape::Section(fields(schema)),
        "object" if schema["additionalProperties"].is_object() => {
            Shape::Named(Box::new(shape(&schema["additionalProperties"])))
        }
        "object" => Shape::Section(Vec::new()),
        "array" => Shape::List(Box::new(shape(&schema["items"]))),
        "string" => Shape::Leaf(match schema["format"].as_str() {
            Some("duration") => Leaf::Duration,
            Some("secret") => Leaf::Secret,
            _ => Leaf::Text,
        }),
        "integer" => Shape::Leaf(Leaf::Integer),
        "number" => Shape::Leaf(Leaf::Number),
        "boolean" => Shape::Leaf(Leaf::Boolean),
        _ => Shape::Leaf(Leaf::Any),
    }
}

/// The schema's type; `null` beside it only says that the key may be left out.
fn kind(schema: &Json) -> &str {
    let one = schema["type"].as_str();
    let several = schema["type"].as_array().into_iter().flatten().filter_map(Json::as_str);
    one.into_iter().chain(several).find(|kind| *kind != "null").unwrap_or("")
}

/// Tables by their `type`, words, or one thing that may be left out.
fn one_of(variants: &[&Json]) -> Shape {
    let typed = variants.iter().map(|schema| {
        let name = schema["properties"][TYPE]["const"].as_str()?.to_owned();
        Some(Variant { name, about: about(schema), fields: fields(schema) })
    });
    if let Some(typed) = typed.collect::<Option<Vec<_>>>() {
        return Shape::Typed(typed);
    }
    if let [only] = variants {
        return shape(only);
    }
    if let [text, table] = variants
        && kind(text) == "string"
        && table["properties"].is_object()
    {
        return Shape::TextOr(fields(table));
    }
    let words = variants.iter().map(|schema| Some((schema["const"].as_str()?.to_owned(), about(schema))));
    Shape::Leaf(words.collect::<Option<Vec<_>>>().map_or(Leaf::Any, Leaf::Word))
}

fn fields(schema: &Json) -> Vec<Field> {
    let properties = schema["properties"].as_object().into_iter().flatten();
    let required = |name: &str| schema["required"].as_array().is_some_and(|names| names.iter().any(|one| one == name));
    let field = |(name, schema): (&String, &Json)| Field {
        name: name.clone(),
        about: about(schema),
        default: schema.get("default").filter(|default| !default.is_null()).cloned(),
        needed: required(name) || schema["x-needed"] == true,
        shape: shape(schema),
    };
    properties.filter(|(name, schema)| *name != TYPE || schema.get("const").is_none()).map(field).collect()
}

/// The doc comment, as one paragraph.
fn about(schema: &Json) -> String {
    schema["description"].as_str().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The known name that is nearest to what was written, if any is near enough to be meant.
pub fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |name: &str| name.to_lowercase().replace('-', "_");
    let written = plain(&written.chars().take(64).collect::<String>());
    let scored = known.into_iter().map(|name| (strsim::normalized_damerau_levenshtein(&written, &plain(name)), name));
    let best = scored.max_by(|one, other| one.0.total_cmp(&other.0));
    best.filter(|(score, _)| *score >= 0.5).map(|(_, name)| name)
}
