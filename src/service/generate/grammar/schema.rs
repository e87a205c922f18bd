//! JSON schemas before they are compiled: what they may ask for, and their references when they move. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::text::shown;

/// Keywords that hold data, not schemas.
const DATA: [&str; 4] = ["const", "enum", "default", "examples"];
/// Keywords that hold schemas by name.
const BY_NAME: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

/// Most [`parts`] of one schema: compiling takes time with their square, every token looks through those that may come
/// next, and the compiler's calls nest as deeply as parts lead to parts.
pub(super) const MOST_PARTS: usize = 2_000;

/// Largest least common multiple of a schema's `multipleOf`s, in units of their last decimal: a state each.
const LARGEST_MULTIPLE: u64 = 20_000;

/// Calls `f` on every schema in `schema`, itself included.
fn each(schema: &mut Value, f: &mut impl FnMut(&mut Map<String, Value>)) {
    match schema {
        Value::Object(map) => {
            f(map);
            for (key, value) in map {
                match value {
                    Value::Object(named) if BY_NAME.contains(&key.as_str()) => {
                        named.values_mut().for_each(|schema| each(schema, f));
                    }
                    _ if DATA.contains(&key.as_str()) => {}
                    value => each(value, f),
                }
            }
        }
        Value::Array(schemas) => schemas.iter_mut().for_each(|schema| each(schema, f)),
        _ => {}
    }
}

/// References of `schema` lead to the same places once it is itself found at `root`, as in `#/properties/arguments`.
pub(in crate::service::generate) fn move_references(schema: &mut Value, root: &str) {
    each(schema, &mut |schema| {
        if let Some(Value::String(reference)) = schema.get_mut("$ref")
            && let Some(path) = reference.strip_prefix('#')
            && (path.is_empty() || path.starts_with('/'))
        {
            *reference = format!("{root}{path}");
        }
    });
}

/// Schemas inside it at any depth (properties, branches, items, …) and references: no path from part to part is longer.
fn parts(schema: &mut Value) -> usize {
    let mut parts = 0;
    each(schema, &mut |schema| {
        let held = |(key, value): (&String, &Value)| match value {
            _ if DATA.contains(&key.as_str()) => 0,
            Value::Object(named) if BY_NAME.contains(&key.as_str()) => named.len(),
            Value::Object(_) => 1,
            Value::Array(list) => list.iter().filter(|item| item.is_object() || item.is_boolean()).count(),
            _ => usize::from(key == "$ref"),
        };
        parts += schema.iter().map(held).sum::<usize>();
    });
    parts
}

/// Whether a schema may be compiled; how many parts it has.
///
/// # Errors
/// A sentence when it has too many parts, or numbers that take too many states.
pub(super) fn check(schema: &mut Value) -> Result<usize, String> {
    let parts = parts(schema);
    few_enough(parts)?;
    if let Some(reference) = circle(schema) {
        return Err(format!("the $ref \"{}\" leads back to itself", shown(&reference)));
    }
    let mut multiples = Vec::new();
    each(schema, &mut |schema| {
        // what is no decimal is refused when it is compiled
        multiples.extend(schema.get("multipleOf").and_then(Value::as_f64).and_then(Decimal::new));
    });
    let mut multiples = multiples.into_iter();
    let all = multiples.next().map(|first| multiples.try_fold(first, Decimal::common));
    if all.is_some_and(|all| all.is_none_or(|all| all.digits > LARGEST_MULTIPLE)) {
        let reason = format!(
            "the values of multipleOf in it have too large a common multiple; at most {LARGEST_MULTIPLE} is \
             followed (of decimals, in units of the last place)"
        );
        return Err(reason);
    }
    Ok(parts)
}

/// A reference of `schema` that leads through references alone back to where it stands, if there is one: nothing follows
/// such a schema.
fn circle(schema: &mut Value) -> Option<String> {
    let mut references = BTreeSet::new();
    each(schema, &mut |schema| {
        references.extend(schema.get("$ref").and_then(Value::as_str).map(str::to_owned));
    });
    let next = |reference: &str| {
        let place = schema.pointer(reference.strip_prefix('#')?)?;
        place.get("$ref")?.as_str().map(str::to_owned)
    };
    // each reference is followed once: by the first walk that comes to it
    let mut walks: BTreeMap<String, usize> = BTreeMap::new();
    for (walk, first) in references.into_iter().enumerate() {
        let mut at = Some(first);
        while let Some(reference) = at {
            match walks.get(&reference) {
                Some(&earlier) if earlier == walk => return Some(reference),
                Some(_) => break,
                None => at = next(&reference),
            }
            walks.insert(reference, walk);
        }
    }
    None
}

/// Whether so many parts may be compiled together.
///
/// # Errors
/// A sentence when they are too many.
pub(in crate::service::generate) fn few_enough(parts: usize) -> Result<(), String> {
    if parts <= MOST_PARTS {
        return Ok(());
    }
    Err(format!(
        "{parts} parts (properties, branches of anyOf and the like, references) are too many; at most {MOST_PARTS} are \
         followed"
    ))
}

/// `digits × 10^-places`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Decimal {
    digits: u64,
    places: u32,
}

impl Decimal {
    /// A positive number of few digits.
    fn new(mut value: f64) -> Option<Self> {
        let mut places = 0;
        while value.fract() != 0.0 && places < 18 {
            value *= 10.0;
            places += 1;
        }
        (value.fract() == 0.0 && value >= 1.0 && value <= f64::from(u32::MAX))
            .then_some(Self { digits: value as u64, places })
    }

    /// The least number that both divide; none where it would take more than 32 bits on the way, as the library has them.
    fn common(self, other: Self) -> Option<Self> {
        let places = self.places.max(other.places);
        let scaled = |d: Self| d.digits.checked_mul(10_u64.checked_pow(places - d.places)?);
        let (a, b) = (scaled(self)?, scaled(other)?);
        let product = a.checked_mul(b).filter(|&p| p <= u64::from(u32::MAX))?;
        let (mut digits, mut places) = (product / gcd(a, b), places);
        while places > 0 && digits % 10 == 0 {
            (digits, places) = (digits / 10, places - 1);
        }
        Some(Self { digits, places })
    }
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_move_with_their_schema_and_data_do_not() {
        let mut schema = json!({
            "$ref": "#/$defs/a",
            "properties": {"$ref": {"$ref": "#"}, "enum": {"$ref": "#/x/0"}, "far": {"$ref": "http://x/#/a"}},
            "enum": [{"$ref": "#/data"}], "items": [{"$ref": "#/y"}],
        });
        move_references(&mut schema, "#/p");
        let moved = json!({
            "$ref": "#/p/$defs/a",
            "properties": {"$ref": {"$ref": "#/p"}, "enum": {"$ref": "#/p/x/0"}, "far": {"$ref": "http://x/#/a"}},
            "enum": [{"$ref": "#/data"}], "items": [{"$ref": "#/p/y"}],
        });
        assert_eq!(schema, moved);
    }

    #[test]
    fn multiples_that_take_too_many_states_are_refused_wherever_they_stand() {
        let of = |values: &[f64]| {
            let all: Vec<Value> = values.iter().map(|m| json!({"multipleOf": m})).collect();
            check(&mut json!({"properties": {"multipleOf": {"type": "integer", "allOf": all}}})).is_ok()
        };
        for fine in
            [&[7.0][..], &[0.01, 500.0], &[0.001], &[0.5, 0.25, 3.0], &[20_000.0], &[1e3, 60.0, 24.0], &[]]
        {
            assert!(of(fine), "{fine:?}");
        }
        for large in [&[999_983.0][..], &[9973.0, 97.0], &[20_001.0], &[1e-7, 20_000.0], &[4e9, 3e9]] {
            assert!(!of(large), "{large:?}");
        }
        assert!(check(&mut json!({"const": {"multipleOf": 999_983}})).is_ok(), "that is data");
    }

    #[test]
    fn references_in_a_circle_are_refused_and_recursion_is_not() {
        let taken = |mut schema: Value| check(&mut schema).is_ok();
        assert!(!taken(json!({"$ref": "#"})));
        let defs =
            json!({"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/c"}, "c": {"$ref": "#/$defs/b"}});
        assert!(!taken(json!({"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": defs})));
        let chain = json!({"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/c"}, "c": {"type": "integer"}});
        assert!(taken(json!({"$ref": "#/$defs/a", "$defs": chain})));
        assert!(taken(json!({"type": "array", "items": {"$ref": "#"}})));
        assert!(taken(json!({"$ref": "#/none"})), "another reason");
    }

    #[test]
    fn parts_are_schemas_and_references_at_any_depth() {
        let mut schema = json!({"properties": {"a": {"anyOf": [true, {"properties": {"b": {}}}]}, "const": {"oneOf": [{}]}}});
        assert_eq!(parts(&mut schema), 6);
        let mut schema =
            json!({"items": {"items": {"$ref": "#"}}, "required": ["a"], "type": ["null"], "enum": [{}, {}]});
        assert_eq!(parts(&mut schema), 3);
        let many: Vec<Value> = (0..=MOST_PARTS).map(|i| json!({"const": i})).collect();
        assert!(check(&mut json!({"anyOf": many})).unwrap_err().contains("2001"));
        assert!(check(&mut json!({"enum": many})).is_ok(), "an enum is one part");
    }
}
