//! The tools of a request, checked.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::service::ServiceError;

/// Most tools of one request.
const MOST: usize = 256;
/// Longest name, in bytes.
const LONGEST_NAME: usize = 256;

/// What may be called: names and the JSON schemas of their parameters. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::service::generate) struct Offered(Arc<Vec<(String, Value)>>);

impl Offered {
    /// Reads OpenAI's list of tools.
    ///
    /// # Errors
    /// Naming the field: `tools[1].function.name`.
    pub(in crate::service::generate) fn new(tools: &Value) -> Result<Self, ServiceError> {
        let list = tools.as_array();
        let list =
            list.ok_or_else(|| ServiceError::invalid("tools", "must be a list of tool definitions"))?;
        if list.len() > MOST {
            let reason = format!("has {} tools, at most {MOST} are taken", list.len());
            return Err(ServiceError::invalid("tools", &reason));
        }
        let one = |(i, tool): (usize, &Value)| {
            let wrong = |name: &str, reason: &str| ServiceError::invalid(format!("tools[{i}]{name}"), reason);
            if !tool.is_object() {
                return Err(wrong("", "must be an object: {\"type\": \"function\", \"function\": {…}}"));
            }
            if tool["type"] != "function" {
                return Err(wrong(".type", "must be \"function\""));
            }
            let function = &tool["function"];
            if !function.is_object() {
                return Err(wrong(".function", "must be an object with a name"));
            }
            let name = function["name"].as_str().filter(|n| (1..=LONGEST_NAME).contains(&n.len()));
            let reason = format!("must be a string of 1 to {LONGEST_NAME} bytes");
            let name = name.ok_or_else(|| wrong(".function.name", &reason))?;
            let parameters = match &function["parameters"] {
                Value::Null => json!({"type": "object"}),
                schema @ (Value::Object(_) | Value::Bool(true)) => schema.clone(),
                _ => return Err(wrong(".function.parameters", "must be a JSON schema")),
            };
            Ok((name.to_owned(), parameters))
        };
        Ok(Self(Arc::new(list.iter().enumerate().map(one).collect::<Result<_, _>>()?)))
    }

    /// Names and schemas, in the order of the request.
    pub(in crate::service::generate) fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, parameters)| (name.as_str(), parameters))
    }

    pub(in crate::service::generate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is a tool of this name.
    pub(in crate::service::generate) fn has(&self, name: &str) -> bool {
        self.iter().any(|(n, _)| n == name)
    }

    /// The schema of one parameter of a tool.
    pub(super) fn parameter(&self, tool: &str, name: &str) -> Option<&Value> {
        self.iter().find(|(n, _)| *n == tool)?.1.get("properties")?.get(name)
    }
}
