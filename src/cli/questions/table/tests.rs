//! Files as the hub has them, written by the decoder's own crate; and files of ill will, some written by hand.

use std::{fs, path::PathBuf, sync::Arc};

use parquet::{
    basic::{Compression, ZstdLevel},
    data_type::{ByteArray, ByteArrayType, Int32Type},
    file::{properties::WriterProperties, writer::SerializedFileWriter},
    schema::parser::parse_message_type,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::eval::data;

/// HotpotQA's columns, as the hub's tables have them.
const SCHEMA: &str = "message schema {
    optional binary id (UTF8);
    optional binary question (UTF8);
    optional binary answer (UTF8);
    optional group supporting_facts {
        optional group title (LIST) { repeated group list { optional binary element (UTF8); } }
        optional group sent_id (LIST) { repeated group list { optional int32 element; } }
    }
    optional group context {
        optional group title (LIST) { repeated group list { optional binary element (UTF8); } }
        optional group sentences (LIST) { repeated group list { optional group element (LIST) {
            repeated group list { optional binary element (UTF8); } } } }
    }
}";
/// The leaves of the schema.
const LEAVES: &[&[&str]] = &[
    &["id"],
    &["question"],
    &["answer"],
    &["supporting_facts", "title"],
    &["supporting_facts", "sent_id"],
    &["context", "title"],
    &["context", "sentences"],
];

fn records() -> Vec<Value> {
    vec![
        json!({"id": "a1", "question": "Who?", "answer": "Ada", "supporting_facts": {"title": ["B", "B"], "sent_id": [0, 3]},
            "context": {"title": ["A", "B", "C"], "sentences": [[" One.", " Zwölf 数. "], ["Ada."], []]}}),
        json!({"id": "a2", "question": "\"Where\"\n?", "answer": null, "supporting_facts": {"title": [], "sent_id": []},
            "context": {"title": ["A"], "sentences": [["x", "y", "z"]]}}),
        json!({"id": "a3", "question": "Which?", "answer": "no", "supporting_facts": null,
            "context": {"title": ["D", "A"], "sentences": [["", "d"], ["e"]]}}),
    ]
}

/// The values of one leaf and their levels.
#[derive(Default)]
struct Leaf {
    definitions: Vec<i16>,
    repetitions: Vec<i16>,
    values: Vec<Value>,
}

impl Leaf {
    /// Everything is optional: a level for a value being there, and for a list one more for an element in it.
    fn shred(&mut self, value: &Value, definition: i16, repetition: i16, lists: i16) {
        match value {
            Value::Array(elements) if !elements.is_empty() => {
                for (i, element) in elements.iter().enumerate() {
                    let repetition = if i == 0 { repetition } else { lists + 1 };
                    self.shred(element, definition + 2, repetition, lists + 1);
                }
                return;
            }
            Value::Null => self.definitions.push(definition),
            Value::Array(_) => self.definitions.push(definition + 1),
            scalar => {
                self.definitions.push(definition + 1);
                self.values.push(scalar.clone());
            }
        }
        self.repetitions.push(repetition);
    }
}

fn leaf(records: &[Value], path: &[&str]) -> Leaf {
    let mut leaf = Leaf::default();
    for record in records {
        let (mut value, mut definition) = (&record[path[0]], 0);
        if let Some(name) = path.get(1).filter(|_| !value.is_null()) {
            (value, definition) = (&value[*name], 1);
        }
        leaf.shred(value, definition, 0, 0);
    }
    leaf
}

/// A table in a fresh folder, `groups` times the records.
fn table(records: &[Value], groups: usize, compression: Compression) -> (TempDir, PathBuf) {
    table_of(SCHEMA, records, groups, compression)
}

fn table_of(schema: &str, records: &[Value], groups: usize, compression: Compression) -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("table.parquet");
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
    let mut writer = SerializedFileWriter::new(File::create(&path).unwrap(), schema, properties).unwrap();
    for _ in 0..groups {
        let mut group = writer.next_row_group().unwrap();
        for path in LEAVES {
            let leaf = leaf(records, path);
            let levels = (Some(leaf.definitions.as_slice()), Some(leaf.repetitions.as_slice()));
            let mut column = group.next_column().unwrap().unwrap();
            if path.last() == Some(&"sent_id") {
                let numbers: Vec<i32> =
                    leaf.values.iter().map(|v| v.as_i64().unwrap().try_into().unwrap()).collect();
                column.typed::<Int32Type>().write_batch(&numbers, levels.0, levels.1).unwrap();
            } else {
                let texts: Vec<ByteArray> = leaf.values.iter().map(|v| v.as_str().unwrap().into()).collect();
                column.typed::<ByteArrayType>().write_batch(&texts, levels.0, levels.1).unwrap();
            }
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
    (home, path)
}

/// The file's bytes, changed, read.
fn changed(path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> Result<String, Problem> {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    let other = path.with_file_name("changed.parquet");
    fs::write(&other, bytes).unwrap();
    read(&other, MOST_BYTES)
}

/// A file that is nothing but this footer.
fn only_footer(footer: &[u8]) -> Result<String, Problem> {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("footer.parquet");
    let length = u32::try_from(footer.len()).unwrap().to_le_bytes();
    fs::write(&path, [MARK, footer, &length, MARK].concat()).unwrap();
    read(&path, MOST_BYTES)
}

#[test]
fn rows_are_the_records_that_were_written() {
    let zstd = Compression::ZSTD(ZstdLevel::default());
    for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, zstd] {
        let (_home, path) = table(&records(), 2, compression);
        let rows: Value = serde_json::from_str(&json(&path).unwrap()).unwrap();
        let want = [records(), records()].concat();
        assert_eq!(rows.as_array().unwrap(), &want, "{compression:?}");
    }
    let (_home, empty) = table(&[], 1, Compression::SNAPPY);
    assert_eq!(json(&empty).unwrap(), "[]");
}

#[test]
fn texts_that_are_not_marked_as_such_are_read_all_the_same() {
    let bare = SCHEMA.replace(" (UTF8)", "");
    let (_home, path) = table_of(&bare, &records(), 1, Compression::UNCOMPRESSED);
    let rows: Value = serde_json::from_str(&json(&path).unwrap()).unwrap();
    assert_eq!(rows.as_array().unwrap(), &records());
    // a letter inside of a list inside of `context`, and one of `question`
    for (text, column) in [("Ada.", "context"), ("Which?", "question")] {
        let error = changed(&path, |bytes| {
            let at = bytes.windows(text.len()).position(|window| window == text.as_bytes());
            bytes[at.unwrap()] = 0xff;
        });
        let told = error.unwrap_err().to_string();
        assert!(
            told.starts_with(&format!("holds bytes in column {column:?} that are no text in UTF-8")),
            "{told}"
        );
    }
}

#[test]
fn a_table_gives_the_questions_that_its_json_gives() {
    let (_home, path) = table(&records(), 1, Compression::SNAPPY);
    let questions = crate::cli::questions::read(&path, 1, true, |_| true).unwrap();
    let by_json: Vec<String> = records().iter().map(Value::to_string).collect();
    assert_eq!(questions, data::parse_any("x", &by_json.join("\n")).unwrap());
    assert_eq!(questions[0].labels, Some(vec![0, 1, 0]));
    assert_eq!(questions[0].chunks[0].text, "One. Zwölf 数.");
    assert_eq!(
        (&questions[2].labels, questions[1].answer.as_deref(), questions[2].answer.as_deref()),
        (&None, None, Some("no"))
    );
}

#[test]
fn what_is_wrong_in_a_row_is_told_with_its_number() {
    let mut wrong = records();
    wrong[1]["question"] = json!(" ");
    let (_home, path) = table(&wrong, 1, Compression::SNAPPY);
    let error = crate::cli::questions::read(&path, 1, true, |_| true).unwrap_err().to_string();
    assert!(
        error.ends_with(
            "table.parquet, record 2: the query is empty; say what is asked, or leave this record out"
        ),
        "{error}"
    );
}

#[test]
fn what_is_no_parquet_file_is_told() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("x.parquet");
    let garbage: Vec<u8> = (0..5000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for bytes in
        [&b""[..], b"PAR1", b"{\"query\": \"a longer text, which is JSON\"}", b"PAR1PAR1PAR", &garbage]
    {
        fs::write(&path, bytes).unwrap();
        let error = json(&path).unwrap_err();
        assert!(matches!(error.problem, Problem::NotParquet), "{error}");
        assert!(
            error
                .to_string()
                .contains("x.parquet does not begin and end as a Parquet file does; get it again")
        );
    }
    assert!(matches!(json(&home.path().join("absent")).unwrap_err().problem, Problem::Io(_)));
    // between the marks there is nothing that is right
    assert!(only_footer(&garbage).is_err());
    assert!(only_footer(&[]).is_err());
}

#[test]
fn every_cut_is_an_error() {
    let (_home, path) = table(&records(), 1, Compression::SNAPPY);
    let length = fs::metadata(&path).unwrap().len() as usize;
    for at in (0..length).step_by(7) {
        assert!(changed(&path, |bytes| bytes.truncate(at)).is_err(), "cut at {at}");
        // the same with an end that looks whole
        let cut = changed(&path, |bytes| drop(bytes.drain(at.min(length - 8)..length - 8)));
        assert!(at + 8 >= length || cut.is_err(), "without the bytes from {at}");
    }
}

#[test]
fn no_flipped_bit_ends_the_program() {
    let (_home, path) = table(&records(), 1, Compression::SNAPPY);
    let length = fs::metadata(&path).unwrap().len() as usize;
    let mut outcomes = [0; 2];
    for at in (0..length).step_by(3) {
        // to be an error, or other text: pages have no checksum
        outcomes[usize::from(changed(&path, |bytes| bytes[at] ^= 1 << (at % 8)).is_ok())] += 1;
    }
    assert!(outcomes.iter().all(|&n| n > length / 30), "{outcomes:?} errors and rows");
}

#[test]
fn rows_that_take_too_much_are_refused_before_they_are_built() {
    let (_home, path) = table(&records(), 1, Compression::SNAPPY);
    let needs = |most| read(&path, most);
    assert!(matches!(needs(1000), Err(Problem::TooLarge { most: 1000 })));
    assert!(needs(10_000).is_ok());

    // Many copies of one long text take a page of a few bytes: the dictionary has it once.
    let long = "x".repeat(100_000);
    let many = vec![json!(long); 30_000];
    let bomb = json!({"context": {"title": many, "sentences": []}});
    let (_home, path) = table(&[bomb], 1, Compression::SNAPPY);
    assert!(fs::metadata(&path).unwrap().len() < 100_000);
    let error = json(&path).unwrap_err().to_string();
    assert!(error.contains("more than 2147483648 bytes of memory; split it"), "{error}");
}

#[test]
fn nesting_without_end_is_an_error_and_no_overflow() {
    // Thrift's compact form: version 2, a schema of one group in the other, each {repetition, name, one child}.
    let footer = |levels: usize| {
        let (mut footer, mut n) = (vec![0x15, 4, 0x19, 0xfc], levels + 1);
        while n >= 128 {
            footer.push(n as u8 | 128);
            n >>= 7;
        }
        footer.push(n as u8);
        for _ in 0..levels {
            footer.extend([0x35, 0, 0x18, 1, b'a', 0x15, 2, 0]);
        }
        // a number at the bottom, no rows, no row groups
        footer.extend([0x15, 2, 0x25, 0, 0x18, 1, b'n', 0, 0x16, 0, 0x19, 0x0c, 0]);
        footer
    };
    assert_eq!(only_footer(&footer(20)).unwrap(), "[]");
    assert_eq!(only_footer(&footer(32)).unwrap(), "[]");
    assert!(matches!(only_footer(&footer(33)), Err(Problem::Deep { found: 33, most: 32 })));
    let deepest = footer(130_000);
    assert!(deepest.len() as u64 <= MOST_FOOTER);
    assert!(matches!(only_footer(&deepest), Err(Problem::Deep { found: 130_000, .. })));
    assert!(matches!(only_footer(&footer(140_000)), Err(Problem::Footer { .. })));
}

/// Version 2 and a schema of these elements: name, number of fields as Thrift writes it, and more fields of the element.
fn footer_of(elements: &[(&str, &[u8], &[u8])]) -> Vec<u8> {
    let number = |mut n: usize| {
        let mut bytes = Vec::new();
        while n >= 128 {
            bytes.push(n as u8 | 128);
            n >>= 7;
        }
        bytes.push(n as u8);
        bytes
    };
    let mut footer = vec![0x15, 4, 0x19, 0xfc];
    footer.extend(number(elements.len()));
    for (name, children, more) in elements {
        footer.extend([0x15, 2, 0x25, 0, 0x18]);
        footer.extend(number(name.len()));
        footer.extend(name.bytes());
        if !children.is_empty() {
            footer.push(0x15);
            footer.extend(*children);
        }
        footer.extend(*more);
        footer.push(0);
    }
    footer.extend([0x16, 0, 0x19, 0x0c, 0]);
    footer
}

#[test]
fn a_schema_that_asks_for_all_memory_is_refused_before_it_is_decoded() {
    let leaf: (&str, &[u8], &[u8]) = ("n", &[], &[]);
    assert_eq!(only_footer(&footer_of(&[("root", &[4], &[]), leaf, leaf])).unwrap(), "[]");
    // 2^31 - 1 fields announced: room for them would be 16 GiB
    let many: &[u8] = &[0xfe, 0xff, 0xff, 0xff, 0x0f];
    let outcome = only_footer(&footer_of(&[("root", &[4], &[]), ("group", many, &[]), leaf]));
    assert!(matches!(outcome, Err(Problem::Children { announced: 0x8000_0001, found: 2 })), "{outcome:?}");
    // every one of 20 000 columns would have its own copy of a name of 100 000 letters
    let long = "x".repeat(100_000);
    let all: &[u8] = &[0xc0, 0xb8, 0x02]; // 20 000
    let mut elements: Vec<(&str, &[u8], &[u8])> = vec![("root", &[2], &[]), (&long, all, &[])];
    elements.extend(vec![leaf; 20_000]);
    let outcome = only_footer(&footer_of(&elements));
    assert!(matches!(outcome, Err(Problem::Names { found: 2_000_000_000.., .. })), "{outcome:?}");
}

#[test]
fn every_kind_of_column_that_is_written_is_known() {
    let schema = "message schema {
        required int32 a (INTEGER(8,true)); required int64 b (INTEGER(64,false)); required int32 c (DECIMAL(9,2));
        required int32 d (DATE); required int64 e (TIME(MICROS,false)); required int64 f (TIMESTAMP(MILLIS,true));
        required int64 g (TIMESTAMP(NANOS,false)); required binary h (STRING); required binary i (JSON);
        required binary j (ENUM); required fixed_len_byte_array(16) k (UUID); required int96 l; required boolean m;
        required group n (MAP) { repeated group key_value { required binary key (STRING); optional float value; } }
    }";
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("kinds.parquet");
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let writer = SerializedFileWriter::new(File::create(&path).unwrap(), schema, Arc::default()).unwrap();
    writer.close().unwrap();
    assert_eq!(json(&path).unwrap(), "[]");
}

#[test]
fn a_schema_that_says_other_types_than_are_read_is_refused() {
    // a boolean, which takes no byte, where the decoder reads a number: the next byte would be that number
    let lie = [0x22, 2]; // field 6 after field 4
    let outcome = only_footer(&footer_of(&[("root", &[2], &[]), ("n", &[], &lie)]));
    assert!(matches!(outcome, Err(Problem::Schema)), "{outcome:?}");
    // logical types: a timestamp, not in UTC, in milliseconds; and one whose unit has a type that is no struct
    let time = |unit: u8| [0x6c, 0x8c, 0x12, 0x1c, unit, 0, 0, 0, 0];
    let of = |more: &[u8]| {
        let mut footer =
            vec![0x15, 4, 0x19, 0x2c, 0x35, 0, 0x18, 1, b'r', 0x15, 2, 0, 0x15, 4, 0x25, 0, 0x18, 1, b'n'];
        footer.extend(more);
        footer.extend([0, 0x16, 0, 0x19, 0x0c, 0]);
        only_footer(&footer)
    };
    assert_eq!(of(&time(0x1c)).unwrap(), "[]");
    assert!(matches!(of(&time(0x11)), Err(Problem::Schema)));
}

#[test]
fn a_compression_that_is_not_read_is_named() {
    // The crate writes no gzip here: a column's codec in the footer is changed instead.
    let (_home, path) = table(&records(), 1, Compression::SNAPPY);
    let error = changed(&path, |bytes| {
        let at = bytes.windows(3).rposition(|w| w == [0x15, 2, 0x16]);
        let at = at.expect("Thrift's compact form of a codec, 1 for Snappy written as 2, and a count");
        bytes[at + 1] = 4;
    });
    let said = error.unwrap_err().to_string();
    assert_eq!(
        said,
        "is compressed with GZIP, and only Snappy and Zstandard are read; write it anew with one of them"
    );
}
