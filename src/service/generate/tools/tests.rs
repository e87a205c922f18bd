use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::service::ServiceError;

const ALL: [ToolFormat; 3] = [ToolFormat::Hermes, ToolFormat::Xml, ToolFormat::Pangu];

fn offered() -> Offered {
    let properties = json!({
        "q": {"type": "string"}, "n": {"type": "integer"}, "deep": {"type": "boolean"}, "tags": {"type": "array"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "x": {"type": ["number", "null"]}, "any": {},
    });
    let function = json!({"name": "search", "parameters": {"type": "object", "properties": properties}});
    Offered::new(&json!([{"type": "function", "function": function}])).unwrap()
}

/// The events of a text that arrives in these pieces, texts that follow each other joined.
fn events<'a>(format: ToolFormat, pieces: impl IntoIterator<Item = &'a str>) -> Vec<Event> {
    let mut stream = ToolStream::new(format, offered());
    let mut all = Vec::new();
    for piece in pieces {
        all.extend(stream.push(piece));
    }
    all.extend(stream.finish());
    let mut joined = Vec::new();
    for event in all {
        match event {
            Event::Text(text) => say(&mut joined, &text),
            call => joined.push(call),
        }
    }
    joined
}

fn text(text: &str) -> Event {
    Event::Text(text.into())
}

fn call(name: &str, arguments: &str) -> Event {
    Event::Call(Call { name: name.into(), arguments: arguments.into() })
}

#[test]
fn hermes_calls_are_found_with_their_arguments_letter_by_letter() {
    let one = |t| events(ToolFormat::Hermes, [t]);
    let plain = "Let me look.\n<tool_call>\n{\"name\": \"search\", \"arguments\": {\"q\": \"a  b\", \"n\":1e2}}\n</tool_call>!";
    assert_eq!(
        one(plain),
        [text("Let me look.\n"), call("search", "{\"q\": \"a  b\", \"n\":1e2}"), text("!")]
    );
    let big = "<tool_call>{\"arguments\":{\"n\":12345678901234567890123},\"name\":\"f\"}</tool_call>";
    assert_eq!(one(big), [call("f", "{\"n\":12345678901234567890123}")]);
    let two = "<tool_call>{\"name\": \"f\"}</tool_call>\n<tool_call>{\"name\": \"g\", \"arguments\": \"{\\\"q\\\": 1}\"}</tool_call>";
    assert_eq!(one(two), [call("f", "{}"), text("\n"), call("g", "{\"q\": 1}")]);
}

#[test]
fn a_closing_tag_inside_a_string_does_not_end_a_call() {
    let body = r#"{"q": "print(\"</tool_call>\") \\", "tags": ["<tool_call>{}", "}"]}"#;
    let said = format!("<tool_call>{{\"name\": \"f\", \"arguments\": {body}}}</tool_call>");
    assert_eq!(events(ToolFormat::Hermes, [said.as_str()]), [call("f", body)]);
    let said =
        format!("[unused11][{{\"name\": \"f\", \"arguments\": {}}}][unused12]", r#"{"q": "[unused12]"}"#);
    assert_eq!(events(ToolFormat::Pangu, [said.as_str()]), [call("f", r#"{"q": "[unused12]"}"#)]);
}

#[test]
fn what_is_no_call_stands_as_it_was_written() {
    for (format, said) in [
        (ToolFormat::Hermes, "a <tool_call> b </tool_call>"),
        (ToolFormat::Hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"q\": \"never closed"),
        (ToolFormat::Hermes, "<tool_call>{\"name\": \"f\", }</tool_call>"),
        (ToolFormat::Hermes, "<tool_call>{\"arguments\": {}}</tool_call>"),
        (ToolFormat::Hermes, "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>"),
        (ToolFormat::Hermes, "<tool_call>[{\"name\": \"f\"}]</tool_call>"),
        (ToolFormat::Hermes, "<tool_call>{\"name\": \"f\"}</tool_cal"),
        (ToolFormat::Hermes, "<tool_call>{\"name\": \"f\"} and </tool_call>"),
        (ToolFormat::Hermes, "x < y, <tool, <tool_calls>, <tool_call"),
        (ToolFormat::Xml, "<tool_call>{\"name\": \"f\"}</tool_call>"),
        (ToolFormat::Xml, "<tool_call><function=></function></tool_call>"),
        (ToolFormat::Xml, "<tool_call><function=f><parameter=q>1</parameter></tool_call>"),
        (ToolFormat::Xml, "<tool_call><function=f>1</function></tool_call>"),
        (ToolFormat::Xml, "<tool_call><function=f></function>"),
        (ToolFormat::Pangu, "[unused11][][unused12]"),
        (ToolFormat::Pangu, "[unused11][{\"name\": \"f\"},][unused12]"),
        (ToolFormat::Pangu, "[unused11][{\"name\": \"f\"}]<|tool_call_end|>"),
        (ToolFormat::Pangu, "[unused1] [unused13]"),
    ] {
        assert_eq!(events(format, [said]), [text(said)], "{format:?}");
    }
    assert_eq!(events(ToolFormat::Xml, [""]), []);
}

#[test]
fn a_call_after_a_broken_one_is_found() {
    let good = "<tool_call>{\"name\": \"f\"}</tool_call>";
    for broken in
        ["<tool_call>oops ", "<tool_call>", "<tool_call>{\"name\": \"g\"}\n", "<tool_call>{\"name\": <"]
    {
        let said = format!("{broken}{good}");
        assert_eq!(events(ToolFormat::Hermes, [said.as_str()]), [text(broken), call("f", "{}")], "{broken}");
    }
}

#[test]
fn xml_values_are_what_the_schema_says() {
    let said = "<tool_call>\n<function=search>\n<parameter=q>\n12\n</parameter>\n<parameter=n>\n12\n</parameter>\n\
        <parameter=deep>True</parameter><parameter=tags>[\"a\", 1]</parameter><parameter=maybe>null</parameter>\
        <parameter=x>many</parameter><parameter=any>3</parameter><parameter=other>{}</parameter>\n</function>\n</tool_call>";
    let want =
        r#"{"q":"12","n":12,"deep":true,"tags":["a",1],"maybe":null,"x":"many","any":"3","other":"{}"}"#;
    assert_eq!(events(ToolFormat::Xml, [said]), [call("search", want)]);
    let none = "<tool_call><function=a.b-c></function></tool_call>";
    assert_eq!(events(ToolFormat::Xml, [none]), [call("a.b-c", "{}")]);
}

#[test]
fn xml_values_may_hold_tags_and_lines() {
    let code = "  if x < 3:\n\n    '</parameter></tool_call>' + '<tool_call><function=g>'\n";
    let said = format!("<tool_call><function=f><parameter=q>\n{code}\n</parameter>\n</function></tool_call>");
    let want = json!({"q": code}).to_string();
    assert_eq!(events(ToolFormat::Xml, [said.as_str()]), [call("f", &want)]);
}

#[test]
fn pangu_writes_lists_in_either_markers() {
    let said = "再看。[unused11][{\"name\": \"f\", \"arguments\": {\"q\": 1}}, {\"name\": \"g\", \"parameters\": {}}][unused12]好";
    let want = [text("再看。"), call("f", "{\"q\": 1}"), call("g", "{}"), text("好")];
    assert_eq!(events(ToolFormat::Pangu, [said]), want);
    let said = "<|tool_call_start|>\n{\"name\": \"f\"}\n<|tool_call_end|>";
    assert_eq!(events(ToolFormat::Pangu, [said]), [call("f", "{}")]);
}

#[test]
fn text_is_told_as_soon_as_it_can_be_no_call() {
    let mut stream = ToolStream::new(ToolFormat::Hermes, offered());
    assert_eq!(stream.push("a <tool"), [text("a ")]);
    assert_eq!(stream.push("box <"), [text("<toolbox ")]);
    assert_eq!(stream.push("tool_call>\n"), []);
    assert_eq!(stream.push("no"), [text("<tool_call>\nno")]);
    assert_eq!(stream.finish(), []);
}

#[test]
fn the_template_shows_the_format() {
    let of = ToolFormat::of_template;
    assert_eq!(of("{{ messages }}"), None);
    assert_eq!(of("within <tool_call></tool_call> tags"), Some(ToolFormat::Hermes));
    assert_eq!(of("<tool_call>\\n<function=example>"), Some(ToolFormat::Xml));
    assert_eq!(of("[unused11]"), Some(ToolFormat::Pangu));
}

#[test]
fn wrong_tools_are_named_by_their_path() {
    let function = |f: Value| json!([{"type": "function", "function": f}]);
    for (tools, field) in [
        (json!({}), "tools"),
        (json!(vec![1; 257]), "tools"),
        (json!([1]), "tools[0]"),
        (
            json!([{"type": "function", "function": {"name": "f"}}, {"function": {"name": "f"}}]),
            "tools[1].type",
        ),
        (json!([{"type": "web_search"}]), "tools[0].type"),
        (json!([{"type": "function"}]), "tools[0].function"),
        (function(json!({"name": ""})), "tools[0].function.name"),
        (function(json!({"name": 1})), "tools[0].function.name"),
        (function(json!({"name": "f", "parameters": []})), "tools[0].function.parameters"),
    ] {
        match Offered::new(&tools) {
            Err(ServiceError::Invalid { field: named, .. }) => assert_eq!(named, field, "{tools}"),
            other => panic!("{tools}: {other:?}"),
        }
    }
}

/// Texts made of what calls are made of, so that many are calls and more are nearly.
fn said() -> impl Strategy<Value = String> {
    let parts = [
        "<tool_call>",
        "</tool_call>",
        "<tool_call>\n{\"name\": \"f\", \"arguments\": {",
        "}}\n</tool_call>",
        "{\"name\": \"f\"}",
        "\"q\": \"</tool_call>\\\"\"",
        "\"n\": 1",
        ",",
        "[",
        "]",
        "{",
        "}",
        "\"",
        "\\",
        "\n",
        " ",
        "a",
        "é",
        "日",
        "<function=search>",
        "</function>",
        "<parameter=n>",
        "</parameter>",
        "<",
        "<tool",
        "[unused11]",
        "[unused12]",
        "[unused11][{\"name\": \"f\"}, ",
        "<|tool_call_start|>",
        "<|tool_call_end|>",
        "7",
    ];
    prop::collection::vec(prop::sample::select(parts.to_vec()), 0..14).prop_map(|parts| parts.concat())
}

/// Cuts a text where the numbers say, at characters.
fn pieces(text: &str, cuts: &[usize]) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut % (chars.len() + 1)).collect();
    at.extend([0, chars.len()]);
    at.sort_unstable();
    at.windows(2).map(|w| chars[w[0]..w[1]].iter().collect()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn events_do_not_depend_on_how_a_text_is_cut(text in said(), cuts in prop::collection::vec(0usize..99, 0..6)) {
        for format in ALL {
            let cut = pieces(&text, &cuts);
            let whole = events(format, [text.as_str()]);
            prop_assert_eq!(&events(format, cut.iter().map(String::as_str)), &whole);
            let chars: Vec<String> = text.chars().map(String::from).collect();
            prop_assert_eq!(&events(format, chars.iter().map(String::as_str)), &whole);
        }
    }

    #[test]
    fn what_was_never_a_call_comes_back(text in said()) {
        for format in ALL {
            let whole = events(format, [text.as_str()]);
            let mut rest = text.as_str();
            let mut calls = 0;
            // the texts are those of the answer, in order; what lies between them began as a call
            for event in &whole {
                match event {
                    Event::Call(_) => calls += 1,
                    Event::Text(said) => {
                        let at = rest.find(said.as_str()).filter(|at| *at == 0 || calls > 0);
                        prop_assert!(at.is_some(), "{:?} is not in {:?}", said, rest);
                        rest = &rest[at.unwrap() + said.len()..];
                    }
                }
            }
            if calls == 0 {
                prop_assert_eq!(rest, "");
            }
        }
    }

    #[test]
    fn every_call_that_is_written_is_found(
        texts in prop::collection::vec("[a-zé<>\\[\\] \n]{0,8}", 3),
        strings in prop::collection::vec("(</tool_call>|</parameter>|<tool_call>|\\[unused12\\]|[a-z\"\\\\{}\n日<]){0,6}", 2),
    ) {
        let arguments: Vec<String> = strings.iter().map(|s| json!({"q": s}).to_string()).collect();
        for format in ALL {
            let write = |i: usize| match format {
                ToolFormat::Hermes => format!("<tool_call>\n{{\"name\": \"search\", \"arguments\": {}}}\n</tool_call>", arguments[i]),
                ToolFormat::Xml => format!("<tool_call>\n<function=search>\n<parameter=q>\n{}\n</parameter>\n</function>\n</tool_call>", strings[i]),
                ToolFormat::Pangu => format!("[unused11][{{\"name\": \"search\", \"arguments\": {}}}][unused12]", arguments[i]),
            };
            // a text that ends as a marker begins would change what is meant
            let plain = |t: &str| t.replace(['<', '['], "(");
            let whole = [plain(&texts[0]), write(0), plain(&texts[1]), write(1), plain(&texts[2])].concat();
            let mut want = Vec::new();
            for i in 0..3 {
                say(&mut want, &plain(&texts[i]));
                if i < 2 {
                    want.push(call("search", &arguments[i]));
                }
            }
            prop_assert_eq!(events(format, [whole.as_str()]), want);
        }
    }
}
