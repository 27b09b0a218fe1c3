//! The document's schemas, generated from the types.
//!
//! Owns their form. OpenAPI 3.1 accepts JSON Schema 2020-12 as it is, so nothing is annotated twice; every keyword is kept, also those that
//! the builder's own types lack.

use schemars::{
    JsonSchema, Schema as Generated, SchemaGenerator,
    generate::SchemaSettings,
    transform::{RecursiveTransform, ReplaceBoolSchemas},
};
use serde_json::Value;
use utoipa::openapi::{
    Components, ComponentsBuilder, RefOr, Schema,
    extensions::Extensions,
    schema::{ObjectBuilder, SchemaType},
};

/// Every schema that something refers to.
pub(super) fn components(mut docs: SchemaGenerator) -> Components {
    let schemas = docs.take_definitions(true).into_iter();
    let named =
        |components: ComponentsBuilder, (name, schema)| components.schema(name, carried(schema));
    schemas.fold(ComponentsBuilder::new(), named).build()
}

/// Collects the schemas.
pub(super) fn generator() -> SchemaGenerator {
    let mut objects = ReplaceBoolSchemas::default();
    objects.skip_additional_properties = true;
    SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        // JSON Schema 2020-12 knows `true` as a schema; client generators do not.
        .with_transform(objects)
        .with_transform(RecursiveTransform(plain))
        .into_generator()
}

/// Simplifies what client generators misread: an enumeration with described names becomes a plain list of names, explained in its
/// description. Duplicates in a list count once and are accepted, so `uniqueItems` is removed.
fn plain(schema: &mut Generated) {
    let Some(members) = schema.as_object_mut() else { return };
    members.remove("uniqueItems");
    let Some(names) = members.get("oneOf").and_then(Value::as_array).and_then(|all| names(all))
    else {
        return;
    };
    let about = members.get("description").and_then(Value::as_str).unwrap_or_default();
    let described = names
        .iter()
        .filter_map(|(name, about)| about.as_ref().map(|about| format!("- `{name}`: {about}")));
    let described = described.collect::<Vec<String>>().join("\n");
    let about = format!("{about}\n\n{described}").trim().to_owned();
    let list = names.into_iter().map(|(name, _)| Value::from(name)).collect::<Vec<Value>>();
    members.remove("oneOf");
    members.insert("type".to_owned(), "string".into());
    members.insert("enum".to_owned(), list.into());
    members.insert("description".to_owned(), about.into());
}

/// The names of an enumeration, each with its description.
fn names(alternatives: &[Value]) -> Option<Vec<(String, Option<String>)>> {
    let mut names = Vec::new();
    for one in alternatives {
        let about = one.get("description").and_then(Value::as_str);
        match (one.get("const"), one.get("enum")) {
            (Some(Value::String(name)), None) => {
                names.push((name.clone(), about.map(str::to_owned)))
            }
            (None, Some(Value::Array(list))) => {
                for name in list {
                    names.push((name.as_str()?.to_owned(), None));
                }
            }
            _ => return None,
        }
    }
    Some(names)
}

/// The schema of an identifier, for a parameter.
pub(super) fn identifier<T: JsonSchema>() -> Value {
    generator().subschema_for::<T>().to_value()
}

/// A schema, keyword by keyword. The builder's types lose unknown keywords, so all of them are carried as extensions.
pub(super) fn carried(schema: Value) -> RefOr<Schema> {
    let keywords = schema.as_object().cloned().unwrap_or_default();
    let extensions: Extensions = keywords.into_iter().collect();
    RefOr::T(
        ObjectBuilder::new()
            .schema_type(SchemaType::AnyValue)
            .extensions(Some(extensions))
            .build()
            .into(),
    )
}
