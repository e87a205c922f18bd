//! The `tojson` filter as Hugging Face defines it: Python's `json.dumps` with its four options.

use minijinja::{
    Error, ErrorKind, State, Value,
    value::{Kwargs, ValueKind},
};

/// Nesting of lists and maps.
const MAX_DEPTH: usize = 100;

/// `value | tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`.
#[allow(clippy::needless_pass_by_value)] // the engine hands options over by value
pub(super) fn tojson(
    state: &State,
    value: &Value,
    ensure_ascii: Option<bool>,
    options: Kwargs,
) -> Result<Value, Error> {
    let ensure_ascii = ensure_ascii.or(options.get("ensure_ascii")?).unwrap_or(false);
    let indent = indent(options.get::<Option<Value>>("indent")?)?;
    let (mut item, mut key) = (if indent.is_some() { "," } else { ", " }.to_string(), ": ".to_string());
    if let Some(pair) = options.get::<Option<Vec<String>>>("separators")? {
        [item, key] = pair.try_into().map_err(|_| invalid("separators are a pair of texts"))?;
    }
    let sort_keys = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    options.assert_all_used()?;
    let mut writer =
        Writer { out: String::new(), ensure_ascii, indent, item, key, sort_keys, state, paid: 0 };
    writer.value(value, 0)?;
    Ok(Value::from(writer.out))
}

fn indent(value: Option<Value>) -> Result<Option<String>, Error> {
    let Some(value) = value.filter(|v| !v.is_none()) else { return Ok(None) };
    if let Some(text) = value.as_str() {
        return Ok(Some(text.into()));
    }
    let width = match value.kind() {
        ValueKind::Bool => i64::from(value.is_true()),
        _ => value.as_i64().ok_or_else(|| invalid("indent is a number or a text"))?,
    };
    Ok(Some(" ".repeat(width.clamp(0, 64) as usize)))
}

fn invalid(reason: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson: {reason}"))
}

struct Writer<'a, 'env, 't> {
    out: String,
    ensure_ascii: bool,
    indent: Option<String>,
    item: String,
    key: String,
    sort_keys: bool,
    state: &'a State<'env, 't>,
    /// Bytes already charged to the rendering's fuel.
    paid: usize,
}

impl Writer<'_, '_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(invalid("nested too deeply"));
        }
        self.pay()?;
        match value.kind() {
            ValueKind::None => self.out += "null",
            ValueKind::Bool => self.out += if value.is_true() { "true" } else { "false" },
            ValueKind::Number if value.is_integer() => self.out += &value.to_string(),
            ValueKind::Number => self.out += &float(f64::try_from(value.clone())?),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq | ValueKind::Iterable => {
                self.container('[', ']', value.try_iter()?, depth, |w, item| w.value(item, depth + 1))?;
            }
            ValueKind::Map => {
                let write = |w: &mut Self, key: &Value| {
                    w.key(key)?;
                    w.value(&value.get_item(key)?, depth + 1)
                };
                if self.sort_keys {
                    let mut keys = Vec::new();
                    for key in value.try_iter()? {
                        self.state.consume_fuel(1)?;
                        keys.push(key);
                    }
                    keys.sort();
                    self.container('{', '}', keys.into_iter(), depth, write)?;
                } else {
                    self.container('{', '}', value.try_iter()?, depth, write)?;
                }
            }
            other => return Err(invalid(&format!("a value of type {other} is not JSON"))),
        }
        Ok(())
    }

    /// Items are taken one by one and paid for one by one: a list may be short to write and endless to read.
    fn container(
        &mut self,
        open: char,
        close: char,
        items: impl Iterator<Item = Value>,
        depth: usize,
        mut write: impl FnMut(&mut Self, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.out.push(open);
        let mut empty = true;
        for item in items {
            if !empty {
                self.out += &self.item;
            }
            empty = false;
            self.line(depth + 1);
            write(self, &item)?;
        }
        if !empty {
            self.line(depth);
        }
        self.out.push(close);
        Ok(())
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            (0..depth).for_each(|_| self.out += indent);
        }
    }

    fn key(&mut self, key: &Value) -> Result<(), Error> {
        match key.kind() {
            ValueKind::String => self.string(key.as_str().unwrap_or_default()),
            ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                self.out.push('"');
                self.value(key, 0)?;
                self.out.push('"');
            }
            other => return Err(invalid(&format!("a key of type {other} is not JSON"))),
        }
        self.out += &self.key;
        Ok(())
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out += "\\\"",
                '\\' => self.out += "\\\\",
                '\n' => self.out += "\\n",
                '\r' => self.out += "\\r",
                '\t' => self.out += "\\t",
                '\u{8}' => self.out += "\\b",
                '\u{c}' => self.out += "\\f",
                c if c < ' ' || (self.ensure_ascii && c > '~') => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        self.out += &format!("\\u{unit:04x}");
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    /// Charges what was written since the last time, so that a hostile template pays for its output.
    fn pay(&mut self) -> Result<(), Error> {
        let owed = (self.out.len() - self.paid) / 64 + 1;
        self.paid = self.out.len();
        self.state.consume_fuel(owed as u64)
    }
}

/// A float as Python's `repr` prints it: shortest digits, scientific outside 1e-4 to 1e16.
fn float(value: f64) -> String {
    if !value.is_finite() {
        let sign = if value < 0.0 { "-" } else { "" };
        return if value.is_nan() { "NaN".into() } else { format!("{sign}Infinity") };
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').expect("Rust's {:e} has an e: this is a bug");
    let exponent: i32 = exponent.parse().expect("Rust's exponents are numbers: this is a bug");
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = value.to_string();
    if plain.contains('.') { plain } else { plain + ".0" }
}
