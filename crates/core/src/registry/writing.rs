//! A document as it is written: nothing where there is nothing, and without defaults unless asked for. What is written can be
//! read again.

use serde_json::{Map, Value};

use super::{Document, KindSettings, QueueSettings};

/// The document as JSON in the form that [`Document::read`] takes; with `full`, defaults too.
pub fn written(document: &Document, full: bool) -> Value {
    let json = |value: serde_json::Result<Value>| value.unwrap_or(Value::Null);
    let usual_queue = json(serde_json::to_value(QueueSettings::default()));
    let queues = document.queues.iter().map(|(name, settings)| {
        let value = said(json(serde_json::to_value(settings)), (!full).then_some(&usual_queue));
        (name.to_string(), by_name(value))
    });
    let kinds = document.kinds.iter().map(|(name, settings)| {
        let mut usual = json(serde_json::to_value(KindSettings::new(settings.queue.clone())));
        // A kind is not one without its queue.
        usual["queue"] = Value::Null;
        let mut value = said(json(serde_json::to_value(settings)), (!full).then_some(&usual));
        if let Some(fields) = value.as_object_mut() {
            // Whoever applies it says that again.
            fields.remove("managed");
            if full && !settings.managed {
                fields.insert("managed".into(), false.into());
            }
            if !full {
                fields.remove("document");
            }
        }
        (name.to_string(), by_name(value))
    });
    let named = document.policies.named.iter().map(|(name, p)| (name.clone(), json(serde_json::to_value(p))));
    let categories = document.policies.categories.iter();
    let categories = categories.map(|(c, p)| (c.as_str().to_owned(), json(serde_json::to_value(p))));
    let platforms = document.policies.platforms.iter().map(|(name, f)| (name.to_string(), Value::from(*f)));
    let tables: [(&str, Map<String, Value>); 5] = [
        ("policies", named.collect()),
        ("categories", categories.collect()),
        ("platforms", platforms.collect()),
        ("queues", queues.collect()),
        ("kinds", kinds.collect()),
    ];
    let tables = tables.into_iter().filter(|(_, table)| !table.is_empty());
    let tables = tables.map(|(name, table)| (name.to_owned(), Value::from(table)));
    let name = document.name.iter().map(|name| ("document".to_owned(), name.as_str().into()));
    Value::Object(name.chain(tables).collect())
}

/// The fields that say something.
fn said(settings: Value, usual: Option<&Value>) -> Value {
    let Value::Object(fields) = settings else { return settings };
    let keep = |(name, value): &(String, Value)| {
        !value.is_null() && usual.is_none_or(|u| u[name.as_str()] != *value)
    };
    Value::Object(fields.into_iter().filter(keep).collect())
}

/// A policy that has a name is written as its name.
fn by_name(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut()
        && let Some(name) = fields.remove("policy")
    {
        fields.insert("retry".into(), name);
    }
    value
}
