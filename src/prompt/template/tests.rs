//! Expected texts were made with Hugging Face's own renderer (transformers 5.24, jinja2 3.1.6).

use super::*;

fn render(source: &str, messages: &Value) -> Result<String, TemplateError> {
    ChatTemplate::new(source)?.render(&RenderInput { messages, ..RenderInput::default() })
}

fn user(content: &str) -> Value {
    json!([{"role": "user", "content": content}])
}

fn rendered(source: &str) -> String {
    render(source, &user("Hi <b> & 'q' \"d\" é")).unwrap_or_else(|e| panic!("{source:?}: {e}"))
}

#[test]
fn blocks_are_trimmed_as_hugging_face_trims_them() {
    for (source, expected) in [
        (
            "{% for m in messages %}\n  {% if true %}\n    {{ m.role }}\n  {% endif %}\n{% endfor %}\nend\n",
            "    user\nend",
        ),
        ("a\n{%- if true %}\n  b\n{%- endif %}\n", "a  b"),
        ("line\n\n\n", "line\n\n"),
        ("{{ 'x\n' }}\n", "x\n"),
        ("   {# comment #}\n x {# c #} y\n", " x  y"),
        (
            "{% generation %}abc{% endgeneration %}\n{%- generation -%}\n d\n{%- endgeneration -%}\n e",
            "abcde",
        ),
    ] {
        assert_eq!(rendered(source), expected, "{source:?}");
    }
}

#[test]
fn what_templates_use_of_python_works() {
    for (source, expected) in [
        ("{{ messages[0]['content'].split('<b>')[-1].strip().upper() }}", "& 'Q' \"D\" É"),
        (
            "{{ messages[0].get('role') }}{{ messages[0].get('x', 'd') }}{{ messages[0].get('x') }}",
            "userdNone",
        ),
        (
            "{% for k, v in messages[0].items() %}{{ k }};{% endfor %}{% for k, v in messages[0] | items %}{{ k }};{% endfor %}",
            "role;content;role;content;",
        ),
        (
            "{% set ns = namespace(x=0) %}{% for m in messages %}{% set ns.x = ns.x + 1 %}{% endfor %}{{ ns.x }}",
            "1",
        ),
        (
            "{% for i in range(6) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "013",
        ),
        (
            "{{ nope }}|{{ messages[0].nope }}|{{ messages[0].nope is defined }}|{{ tools is none }}|{{ bos_token }}",
            "||False|True|",
        ),
        (
            "{% for x in nope %}a{% else %}none{% endfor %}{{ none }} {{ true }} {{ 1.0 }} {{ [1, 'a', none] }}",
            "noneNone True 1.0 [1, 'a', None]",
        ),
        ("{{ 'abc'[::-1] }}{{ 'a' ~ none ~ 1 }}{{ 'b' if true else 'c' }}{{ 7 // 2 }}", "cbaaNone1b3"),
    ] {
        assert_eq!(rendered(source), expected, "{source:?}");
    }
}

#[test]
fn json_is_printed_as_python_prints_it() {
    let tool = json!([{"name": "get", "d": "a < b && 'c' é\u{1}", "z": {"default": 1.0, "max": 1e22, "min": 1e-7,
        "mid": 123_456_789.125, "big": 10_000_000_000_000_000u64, "neg": -0.0001}, "a": [], "m": {}, "n": null, "y": true}]);
    let print = |options: &str| {
        let template = ChatTemplate::new(&format!("{{{{ tools | tojson{options} }}}}")).unwrap();
        template
            .render(&RenderInput { tools: Some(&tool), messages: &json!([]), ..RenderInput::default() })
            .unwrap()
    };
    assert_eq!(
        print(""),
        r#"[{"name": "get", "d": "a < b && 'c' é\u0001", "z": {"default": 1.0, "max": 1e+22, "min": 1e-07, "mid": 123456789.125, "big": 10000000000000000, "neg": -0.0001}, "a": [], "m": {}, "n": null, "y": true}]"#
    );
    assert!(print("(ensure_ascii=true)").contains(r#"'c' \u00e9\u0001""#));
    assert!(print("(separators=(',', ':'))").starts_with(r#"[{"name":"get","d":"#));
    assert!(print("(sort_keys=true)").starts_with(r#"[{"a": [], "d": "#));
    assert!(print("(indent=2)").starts_with("[\n  {\n    \"name\": \"get\",\n    \"d\": "));
    assert!(
        print("(indent=2)")
            .ends_with("\"a\": [],\n    \"m\": {},\n    \"n\": null,\n    \"y\": true\n  }\n]")
    );
    assert!(print("(indent=0)").starts_with("[\n{\n\"name\": \"get\",\n"));
    assert_eq!(rendered("{{ '\u{7f}😀\"\\\\' | tojson(ensure_ascii=true) }}"), r#""\u007f\ud83d\ude00\"\\""#);
    assert_eq!(rendered("{{ {'b': 1, 1: none} | tojson }}"), r#"{"b": 1, "1": null}"#);
    for wrong in ["{{ nope | tojson }}", "{{ 1 | tojson(indnt=2) }}", "{{ 1 | tojson(separators=',') }}"] {
        assert!(render(wrong, &user("")).is_err(), "{wrong}");
    }
}

#[test]
fn variables_reach_the_template_and_extras_never_replace_them() {
    let extra = json!({"enable_thinking": false, "messages": "x", "bos_token": "x", "tools": "x"});
    let messages = user("m");
    let input = RenderInput {
        messages: &messages,
        add_generation_prompt: true,
        bos_token: Some("<s>"),
        eos_token: Some("</s>"),
        extra: extra.as_object(),
        now: Some(CivilTime { year: 2024, month: 7, day: 26, hour: 1, minute: 2, second: 3 }),
        tools: None,
    };
    let source = "{{ bos_token }}{{ messages[0].content }}{{ tools }}{{ enable_thinking }}{{ add_generation_prompt }}\
        {{ eos_token }}{{ strftime_now('%d %b %Y') }}";
    let template = ChatTemplate::new(source).unwrap();
    assert_eq!(template.render(&input).unwrap(), "<s>mNoneFalseTrue</s>26 Jul 2024");
    let error = template.render(&RenderInput { now: None, ..input }).unwrap_err();
    assert!(error.to_string().contains("date"), "{error}");
    let error = ChatTemplate::new("{{ strftime_now('%Q') }}").unwrap().render(&input).unwrap_err();
    assert!(error.to_string().contains("%Q"), "{error}");
}

#[test]
fn a_refusal_comes_in_the_templates_own_words() {
    let source = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% endfor %}ok";
    assert_eq!(render(source, &user("x")).unwrap(), "ok");
    let error = render(source, &json!([{"role": "system", "content": "x"}])).unwrap_err();
    assert_eq!(error, TemplateError::Raised { message: "System role not supported".into() });
    let inside = "{% macro f() %}{{ raise_exception('deep') }}{% endmacro %}{{ f() }}";
    assert_eq!(render(inside, &user("x")), Err(TemplateError::Raised { message: "deep".into() }));
}

#[test]
fn errors_name_the_line() {
    assert!(matches!(ChatTemplate::new("a\n{% if %}"), Err(TemplateError::Syntax { line: 2, .. })));
    assert!(matches!(ChatTemplate::new("{% for x in y %}"), Err(TemplateError::Syntax { .. })));
    assert!(matches!(render("\n\n{{ 1 + 'a' }}", &user("")), Err(TemplateError::Failed { line: 3, .. })));
    assert!(matches!(render("{{ nope.deeper }}", &user("")), Err(TemplateError::Failed { line: 1, .. })));
    assert!(render("{% include 'other' %}", &user("")).is_err(), "there is no other template to reach");
}

#[test]
fn chatml_is_what_its_models_expect() {
    let messages = json!([{"role": "system", "content": "S"}, {"role": "user", "content": "U\n"}]);
    assert_eq!(
        render(CHATML, &messages).unwrap(),
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU\n<|im_end|>\n"
    );
    let template = ChatTemplate::new(CHATML).unwrap();
    let halves = template.split_around("@", &RenderInput::default()).unwrap();
    assert_eq!(halves, ("<|im_start|>user\n".into(), "<|im_end|>\n<|im_start|>assistant\n".into()));
}

#[test]
fn a_prompt_is_split_only_around_an_intact_sentinel() {
    let split = |source: &str| {
        let base = RenderInput { bos_token: Some("<s>"), ..RenderInput::default() };
        ChatTemplate::new(source).unwrap().split_around("\u{2063}User\u{2063}", &base)
    };
    let whole = "{{ bos_token }}[{{ messages[0].content }}]{% if add_generation_prompt %}>{% endif %}";
    assert_eq!(split(whole).unwrap(), ("<s>[".into(), "]>".into()));
    for (source, count) in [
        ("nothing", 0),
        ("{{ messages[0].content | upper }}", 0),
        ("{{ messages[0].content[1:] }}", 0),
        ("{{ messages[0].content }}{{ messages[0].content }}", 2),
    ] {
        assert_eq!(split(source), Err(TemplateError::Sentinel { count }), "{source}");
    }
    assert!(matches!(split("{{ raise_exception('no') }}"), Err(TemplateError::Raised { .. })));
}

#[test]
fn hostile_templates_end() {
    let nest = |open: &str, close: &str, n| open.repeat(n) + "1" + &close.repeat(n);
    let mut sources = vec![
        "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}".to_string(),
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}".into(),
        "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}".into(),
        "{{ 'a' * 1000000000000 }}".into(),
        "{{ range(1000000000000) | list | length }}".into(),
        "{{ 'x' | indent(10000000000) }}".into(),
        "{% set ns = namespace(x=messages) %}{% for i in range(30) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x | tojson }}".into(),
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}".into(),
        "{{ [1] | tojson(indent='x' * 100000) }}".into(),
        "{{ 1 | tojson(separators=(1, 2, 3)) }}".into(),
        "{{ '%1000000000d' | format(1) }}".into(),
        "{{ 2 ** 1000000 }}".into(),
    ];
    sources.extend([
        format!("{{{{ {} }}}}", nest("(", ")", 100_000)),
        format!("{{{{ {} }}}}", nest("[", "]", 100_000)),
        format!("{{{{ {}1 }}}}", "not ".repeat(100_000)),
        format!("{{{{ {}1 }}}}", "-".repeat(100_000)),
        nest("{% if 1 %}", "{% endif %}", 100_000),
        format!("{{{{ 1{} }}}}", " + 1".repeat(100_000)),
        format!("{{{{ x{} }}}}", ".y".repeat(100_000)),
        format!("{{{{ 'x'{} }}}}", " | upper".repeat(100_000)),
    ]);
    for source in sources {
        let shown: String = source.chars().take(90).collect();
        match render(&source, &user("x")) {
            Ok(text) => assert!(text.len() < 300_000_000, "{shown}"),
            Err(error) => assert!(error.to_string().len() < 10_000, "{shown}: {error}"),
        }
    }
}

#[test]
fn deeply_nested_values_do_not_overflow_the_stack() {
    for body in ["{% set ns.x = [ns.x] %}", "{% set ns.x = {'a': ns.x} %}"] {
        for end in ["", "{{ ns.x }}", "{{ ns.x | tojson }}", "{{ ns.x == ns.x }}"] {
            let source = format!(
                "{{% set ns = namespace(x=1) %}}{{% for i in range(99999) %}}{body}{{% endfor %}}{end}"
            );
            let _ = render(&source, &user("x"));
        }
    }
}
