//! A Parquet file → the text of a JSON array with an object per row, as if the dataset had come as JSON.
//!
//! Owns the decoder's leash: files come from the network, and the decoder believes what they say of themselves. It runs
//! on a thread of its own, where a panic ends nothing else; `footer` looks at the schema before it does, and a first pass
//! adds up what the rows will take before one is built. Must not know a field's meaning. Tests: `table/tests.rs`.

mod footer;
#[cfg(test)]
mod tests;

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
    thread,
};

use parquet::{
    basic::CompressionCodec,
    column::reader::{ColumnReader, ColumnReaderImpl},
    data_type::ByteArrayType,
    errors::ParquetError,
    file::reader::{FileReader, SerializedFileReader},
    record::{Field, Row},
    schema::types::ColumnDescriptor,
};
use serde_json::{Map, Value};

use crate::text::{shown, shown_sentence};

/// Most bytes that the rows of one file may take; a split of HotpotQA takes a fifth.
const MOST_BYTES: u64 = 2 << 30;
/// Most bytes of a footer, the schema and the places of columns. Hundreds of columns in hundreds of row groups fit.
const MOST_FOOTER: u64 = 1 << 20;
/// The compressions that are read. What gzip unpacks to is bounded by nothing that can be asked beforehand.
const READ: [CompressionCodec; 3] =
    [CompressionCodec::UNCOMPRESSED, CompressionCodec::SNAPPY, CompressionCodec::ZSTD];
/// Bytes that a value takes beside its text.
const VALUE: u64 = 64;
/// Records looked at together in the first pass.
const BATCH: usize = 1024;
/// What a file begins and ends with.
const MARK: &[u8; 4] = b"PAR1";

/// Why a Parquet file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{file} {problem}")]
pub(super) struct TableError {
    file: String,
    problem: Problem,
}

#[derive(Debug, thiserror::Error)]
enum Problem {
    #[error("cannot be read: {0}; check that the file is there and may be read")]
    Io(#[from] io::Error),
    #[error(
        "does not begin and end as a Parquet file does; get it again, or name it .json or .jsonl if that is what it is"
    )]
    NotParquet,
    #[error(
        "has a footer of {found} bytes, and at most {MOST_FOOTER} are read; write it anew with fewer columns"
    )]
    Footer { found: u64 },
    #[error(
        "nests fields {found} deep, and at most {most} levels are read; write it anew with plainer fields"
    )]
    Deep { found: usize, most: usize },
    #[error("has a footer that does not begin with a Parquet schema; get it again, or write it anew")]
    Schema,
    #[error("announces {announced} fields in its schema and has {found}; get it again, or write it anew")]
    Children { announced: u64, found: u64 },
    #[error(
        "has columns whose names take {found} bytes with those of all that they lie in, and at most {most} are read; write it \
         anew with fewer columns or shorter names"
    )]
    Names { found: u64, most: u64 },
    #[error(
        "holds bytes in column {column:?} that are no text in UTF-8; write it anew with texts there, or without that column"
    )]
    NoText { column: String },
    #[error("has no columns; choose another file")]
    NoColumns,
    #[error("holds rows that take more than {most} bytes of memory; split it into smaller files")]
    TooLarge { most: u64 },
    #[error(
        "is compressed with {found:?}, and only Snappy and Zstandard are read; write it anew with one of them"
    )]
    Compression { found: CompressionCodec },
    #[error("is no whole Parquet file: {}; get it again, or write it anew", shown_sentence(&.0.to_string()))]
    Decode(#[from] ParquetError),
    #[error("is damaged, the decoder gave up on it: {}; get it again", shown_sentence(.0))]
    Panic(String),
}

/// Reads the rows of a file, whose fields become those of JSON objects: structs objects, lists arrays, bytes and
/// times texts.
///
/// # Errors
/// When it is no Parquet file, is damaged, is compressed by neither Snappy nor Zstandard, holds bytes that are no text, or
/// would take too much memory.
pub(super) fn json(path: &Path) -> Result<String, TableError> {
    read(path, MOST_BYTES).map_err(|problem| TableError { file: path.display().to_string(), problem })
}

fn read(path: &Path, most: u64) -> Result<String, Problem> {
    let file = File::open(path)?;
    check_footer(&file)?;
    let decoder = thread::Builder::new().name("parquet".into());
    let outcome = decoder.spawn(move || rows(file, most))?.join();
    outcome.unwrap_or_else(|panic| {
        let told = panic.downcast_ref::<String>().map(String::as_str);
        let told = told.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Problem::Panic(told.unwrap_or("no reason is known").to_owned()))
    })
}

/// A file is `PAR1`, columns, the footer, the footer's length in four bytes, `PAR1`.
fn check_footer(mut file: &File) -> Result<(), Problem> {
    let (mut start, mut end) = ([0; 4], [0; 8]);
    let length = file.metadata()?.len();
    if length < 12 {
        return Err(Problem::NotParquet);
    }
    file.read_exact(&mut start)?;
    file.seek(SeekFrom::End(-8))?;
    file.read_exact(&mut end)?;
    if start != *MARK || end[4..] != *MARK {
        return Err(Problem::NotParquet);
    }
    let found = u64::from(u32::from_le_bytes([end[0], end[1], end[2], end[3]]));
    if found > MOST_FOOTER {
        return Err(Problem::Footer { found });
    }
    if found > length - 12 {
        return Err(Problem::NotParquet);
    }
    file.seek(SeekFrom::End(-8 - found.cast_signed()))?;
    let mut footer = Vec::new();
    file.take(found).read_to_end(&mut footer)?;
    footer::check(&footer)
}

fn rows(file: File, most: u64) -> Result<String, Problem> {
    let reader = SerializedFileReader::new(file)?;
    if reader.metadata().file_metadata().schema_descr().num_columns() == 0 {
        return Err(Problem::NoColumns);
    }
    measure(&reader, &mut Budget { left: most, most })?;
    let mut text = "[".to_owned();
    for row in reader.get_row_iter(None)? {
        if text.len() > 1 {
            text += ",\n";
        }
        text += &object(&row?)?.to_string();
    }
    text += "]";
    Ok(text)
}

fn object(row: &Row) -> Result<Value, Problem> {
    let named = |(name, field): (&String, &Field)| {
        let value = value(field).ok_or_else(|| Problem::NoText { column: shown(name) })?;
        Ok((name.clone(), value))
    };
    row.get_column_iter().map(named).collect::<Result<Map<_, _>, _>>().map(Value::Object)
}

/// As the decoder's own, but for bytes: some writers do not mark texts as such. None when they are no text.
fn value(field: &Field) -> Option<Value> {
    Some(match field {
        Field::Bytes(bytes) => std::str::from_utf8(bytes.data()).ok()?.into(),
        Field::Group(row) => {
            let named = |(name, field): (&String, &Field)| Some((name.clone(), value(field)?));
            Value::Object(row.get_column_iter().map(named).collect::<Option<_>>()?)
        }
        Field::ListInternal(list) => Value::Array(list.elements().iter().map(value).collect::<Option<_>>()?),
        Field::MapInternal(map) => {
            let entry = |(key, field): &(Field, Field)| {
                let key = value(key)?;
                let name = key.as_str().map_or_else(|| key.to_string(), str::to_owned);
                Some((name, value(field)?))
            };
            Value::Object(map.entries().iter().map(entry).collect::<Option<_>>()?)
        }
        other => other.to_json_value(),
    })
}

struct Budget {
    left: u64,
    most: u64,
}

impl Budget {
    fn take(&mut self, bytes: u64) -> Result<(), Problem> {
        self.left = self.left.checked_sub(bytes).ok_or(Problem::TooLarge { most: self.most })?;
        Ok(())
    }
}

/// Adds up what all rows will take, a page or a batch at a time. A page of a few bytes can stand for two thousand million
/// values, and a text in a dictionary for as many copies.
fn measure(reader: &SerializedFileReader<File>, budget: &mut Budget) -> Result<(), Problem> {
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group)?;
        for index in 0..group.num_columns() {
            let chunk = group.metadata().column(index);
            let (column, found) = (chunk.column_descr(), chunk.compression_codec());
            if !READ.contains(&found) {
                return Err(Problem::Compression { found });
            }
            for page in group.get_column_page_reader(index)? {
                let page = page?;
                budget.take(page.buffer().len() as u64)?;
                budget.take(u64::from(page.num_values()).saturating_mul(bytes_per_value(column)))?;
            }
            if let ColumnReader::ByteArrayColumnReader(texts) = group.get_column_reader(index)? {
                measure_texts(texts, budget)?;
            }
        }
    }
    Ok(())
}

/// A row has the names of its fields with every value, and a column can be of texts of one length.
fn bytes_per_value(column: &ColumnDescriptor) -> u64 {
    let names: usize = column.path().parts().iter().map(String::len).sum();
    VALUE + names as u64 + u64::try_from(column.type_length()).unwrap_or(0)
}

/// The values are slices of pages here, and copies in rows.
fn measure_texts(mut column: ColumnReaderImpl<ByteArrayType>, budget: &mut Budget) -> Result<(), Problem> {
    let (mut definitions, mut repetitions, mut texts) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let (_, _, levels) =
            column.read_records(BATCH, Some(&mut definitions), Some(&mut repetitions), &mut texts)?;
        if levels == 0 {
            return Ok(());
        }
        budget.take(texts.iter().map(|text| text.len() as u64).sum())?;
        definitions.clear();
        repetitions.clear();
        texts.clear();
    }
}
