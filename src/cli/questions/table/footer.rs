//! What a Parquet file says its schema takes, added up before the decoder believes it.
//!
//! The decoder reserves room for as many fields as a group says it has, recurses once per level, and gives every column a
//! copy of all the names it lies in: a megabyte of footer can ask for all memory there is. Owns as much of Thrift's compact
//! form as it takes to see that; the rest is the decoder's. Tests: `table/tests.rs`.

use super::Problem;

/// Deepest nesting of fields; a list counts twice.
const DEEPEST: usize = 32;
/// Most bytes of all columns' paths.
const MOST_PATHS: u64 = 64 << 20;
/// What a name in a path takes beside its letters.
const NAME: u64 = 24;

// Types of Thrift's compact form; a boolean's value is in its type.
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I32: u8 = 5;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

/// Types by field number, from 1. The decoder reads fields as these, whatever type the file gives them, so a file that
/// gives others is refused: it would mean one thing here and another there.
const ELEMENT: &[u8] = &[I32, I32, I32, BINARY, I32, I32, I32, I32, I32, STRUCT];
/// Deepest nesting of what is skipped.
const DEEPEST_SKIPPED: usize = 8;

/// Checks the schema of a footer.
///
/// # Errors
/// When it nests too deep, would take too much memory, or is none.
pub(super) fn check(footer: &[u8]) -> Result<(), Problem> {
    let mut thrift = Thrift { rest: footer };
    let n_elements = thrift.schema().ok_or(Problem::Schema)?;
    // of each group that goes on: fields to come, and what the path to it takes
    let mut groups: Vec<(u64, u64)> = Vec::new();
    let (mut announced, mut paths, mut deepest) = (0, 0, 0);
    for _ in 0..n_elements {
        let element = thrift.element().ok_or(Problem::Schema)?;
        let path = groups.last().map_or(0, |&(_, path)| path) + NAME + element.name;
        deepest = deepest.max(groups.len());
        if let Some((to_come, _)) = groups.last_mut() {
            *to_come = to_come.saturating_sub(1);
        }
        announced += element.children;
        if element.children > 0 {
            groups.push((element.children, path));
        } else {
            paths += path;
            groups.truncate(groups.iter().rposition(|&(to_come, _)| to_come > 0).map_or(0, |last| last + 1));
        }
    }
    if announced >= n_elements.max(1) {
        return Err(Problem::Children { announced, found: n_elements.saturating_sub(1) });
    }
    if deepest > DEEPEST {
        return Err(Problem::Deep { found: deepest, most: DEEPEST });
    }
    if paths > MOST_PATHS { Err(Problem::Names { found: paths, most: MOST_PATHS }) } else { Ok(()) }
}

/// A field of the schema.
#[derive(Default)]
struct Element {
    /// Bytes of its name.
    name: u64,
    /// Fields in it, as it says.
    children: u64,
}

struct Thrift<'a> {
    rest: &'a [u8],
}

impl Thrift<'_> {
    /// Goes to the schema's first element, and says how many there are. Every writer gives the version and the schema
    /// first; the decoder reads no second schema.
    fn schema(&mut self) -> Option<u64> {
        let version = self.field(0)? == (1, I32);
        self.number()?;
        let schema = self.field(1)? == (2, LIST);
        let (n, of) = self.list()?;
        (version && schema && of == STRUCT).then_some(n)
    }

    fn element(&mut self) -> Option<Element> {
        let (mut element, mut last) = (Element::default(), 0);
        loop {
            let (id, kind) = self.field(last)?;
            if kind == 0 {
                return Some(element);
            }
            let known = usize::try_from(id).ok().and_then(|id| ELEMENT.get(id.checked_sub(1)?));
            if known.is_some_and(|&known| known != kind) {
                return None;
            }
            match id {
                4 => element.name = self.bytes()?,
                // a number from twice the fields on; the decoder takes 32 bits of it
                5 => element.children = u64::try_from(zigzag(self.number()?) as i32).unwrap_or(0),
                10 => self.logical_type()?,
                _ => self.skip(kind, DEEPEST_SKIPPED)?,
            }
            last = id;
        }
    }

    /// A union: one struct, for some types with fields.
    fn logical_type(&mut self) -> Option<()> {
        let (id, kind) = self.field(0)?;
        let wants: &[u8] = match id {
            5 => &[I32, I32],          // decimal: scale, precision
            7 | 8 => &[TRUE, STRUCT],  // time and timestamp: in UTC or not, unit
            10 => &[BYTE, TRUE],       // integer: bits, signed or not
            16 => &[BYTE],             // variant: version
            17 | 18 => &[BINARY, I32], // geometry and geography: reference system, edges
            _ => &[],
        };
        if kind != STRUCT {
            return None;
        }
        let mut last = 0;
        loop {
            let (id, kind) = self.field(last)?;
            if kind == 0 {
                break;
            }
            let want = usize::try_from(id).ok().and_then(|id| wants.get(id.checked_sub(1)?));
            let boolean = kind == FALSE && want == Some(&TRUE);
            if want.is_some_and(|&want| want != kind && !boolean) {
                return None;
            }
            if want == Some(&STRUCT) {
                self.unit()?
            } else {
                self.skip(kind, DEEPEST_SKIPPED)?
            }
            last = id;
        }
        (self.byte()? == 0).then_some(())
    }

    /// A union of structs without fields.
    fn unit(&mut self) -> Option<()> {
        let struct_ = self.field(0)?.1 == STRUCT;
        (struct_ && self.byte()? == 0 && self.byte()? == 0).then_some(())
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn pass(&mut self, n: u64) -> Option<()> {
        self.rest = self.rest.get(usize::try_from(n).ok()?..)?;
        Some(())
    }

    /// A number of variable length, seven bits a byte.
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn bytes(&mut self) -> Option<u64> {
        let n = self.number()?;
        self.pass(n)?;
        Some(n)
    }

    /// Number and type of the next field after `last`; type 0 ends a struct.
    fn field(&mut self, last: i16) -> Option<(i16, u8)> {
        let head = self.byte()?;
        let (step, kind) = (i16::from(head >> 4), head & 0xf);
        match (kind, step) {
            (0, _) => Some((0, 0)),
            (_, 0) => Some((zigzag(self.number()?) as i16, kind)),
            _ => Some((last.checked_add(step)?, kind)),
        }
    }

    /// Length of a list and type of its elements.
    fn list(&mut self) -> Option<(u64, u8)> {
        let head = self.byte()?;
        let n = if head >> 4 == 15 { self.number()? } else { u64::from(head >> 4) };
        Some((n, head & 0xf))
    }

    /// A value of no interest.
    fn skip(&mut self, kind: u8, depth: usize) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            TRUE | FALSE => Some(()),
            BYTE => self.pass(1),
            I16 | I32 | I64 => self.number().map(drop),
            DOUBLE => self.pass(8),
            BINARY => self.bytes().map(drop),
            STRUCT => loop {
                match self.field(0)? {
                    (_, 0) => return Some(()),
                    (_, kind) => self.skip(kind, depth)?,
                }
            },
            _ => None, // no writer puts a list, set or map in a schema
        }
    }
}

/// Thrift's signed numbers: 0, -1, 1, -2, …
fn zigzag(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}
