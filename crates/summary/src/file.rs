//! Summaries in Parquet: a row for each run, in the order of their keys and ranges. The same rows
//! give the same bytes. `docs/trace.md` describes the columns.

use crate::decode::{Bounded, guarded};
use crate::row::{Group, Key, PARTS, Run, Stream, Touches};
use crate::{Form, Header, SummaryError, VERSION};
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::column::reader::{ColumnReaderImpl, get_column_reader, get_typed_column_reader};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{ColumnPath, Type};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::sync::Arc;

/// First bytes of a Parquet file.
pub(crate) const MAGIC: &[u8; 4] = b"PAR1";

/// Rows that are written together, and read into memory together.
const TOGETHER: usize = 16 << 10;

/// Bytes of text with which a part is written, whatever its rows, and the most that one has: a path
/// that continues the one before it takes few bytes in a file, and all of them in memory.
const TEXT_TOGETHER: usize = 16 << 20;
const MOST_TEXT: usize = 64 << 20;

/// Values that are decoded before their lengths are checked.
const TEXTS_AT_ONCE: usize = 64;

/// Names in the file's metadata. The sum is that of all bytes before the metadata (CRC-32C).
const VERSION_KEY: &str = "seekless_summary";
const TRACES_KEY: &str = "traces";
const MACHINES_KEY: &str = "machines";
const FORM_KEY: &str = "form";
const MIN_MACHINES_KEY: &str = "min_machines";
const BYTES_KEY: &str = "data_bytes";
const SUM_KEY: &str = "data_crc32c";

/// Columns of text, of flags and of numbers.
const TEXTS: [(&str, bool); 3] = [("path", false), ("op", true), ("stream", true)];
const FLAGS: [&str; 2] = ["missing", "fetched"];
const NUMBERS: [&str; 7] =
    ["offset", "end", "stream_number", "traces", "machines", "weight", "rank"];

/// Values of one of the columns with the parts of the order.
fn part_name(part: usize) -> String {
    format!("rank_{part:02}")
}

fn schema() -> Result<Type, ParquetError> {
    let field = |name: &str, physical, logical| {
        let field = Type::primitive_type_builder(name, physical).with_logical_type(logical);
        field.with_repetition(Repetition::REQUIRED).build().map(Arc::new)
    };
    let mut fields = Vec::new();
    for (name, is_text) in TEXTS {
        fields.push(field(name, Physical::BYTE_ARRAY, is_text.then_some(LogicalType::String))?);
    }
    for name in FLAGS {
        fields.push(field(name, Physical::BOOLEAN, None)?);
    }
    let parts: Vec<String> = (0..PARTS).map(part_name).collect();
    for name in NUMBERS.into_iter().chain(parts.iter().map(String::as_str)) {
        fields.push(field(name, Physical::INT64, Some(LogicalType::integer(64, false)))?);
    }
    Type::group_type_builder("touched").with_fields(fields).build()
}

/// Rows by columns, in the order of the schema.
#[derive(Default)]
struct Columns {
    texts: [Vec<ByteArray>; TEXTS.len()],
    /// Bytes of all texts.
    text: usize,
    flags: [Vec<bool>; FLAGS.len()],
    numbers: [Vec<i64>; NUMBERS.len() + PARTS],
}

impl Columns {
    fn len(&self) -> usize {
        self.flags.first().map_or(0, Vec::len)
    }

    fn push(&mut self, key: &Key, run: &Run) {
        let Touches { traces, machines, weight, rank, stream, parts } = &run.touches;
        let texts = [key.path.clone(), key.op.as_bytes().to_vec(), stream.name.as_bytes().to_vec()];
        for (column, text) in self.texts.iter_mut().zip(texts) {
            self.text += text.len();
            column.push(text.into());
        }
        for (column, flag) in self.flags.iter_mut().zip([key.missing, key.fetched]) {
            column.push(flag);
        }
        let numbers = [run.from, run.to, stream.number, *traces, *machines, *weight, *rank];
        for (column, number) in self.numbers.iter_mut().zip(numbers.into_iter().chain(*parts)) {
            // Unsigned ones have the bits of signed ones there.
            column.push(number.cast_signed());
        }
    }

    /// Key and run of a row.
    fn row(&self, at: usize, names: &mut Names) -> Result<(Key, Run), SummaryError> {
        let short = || SummaryError::Corrupt("columns of different lengths");
        let text = |column: usize| Some(self.texts.get(column)?.get(at)?.data());
        let flag = |column: usize| self.flags.get(column)?.get(at).copied();
        let mut numbers = self.numbers.iter().map(|column| column.get(at).copied());
        let mut number = || numbers.next().flatten().map(i64::cast_unsigned).ok_or_else(short);
        let key = Key {
            path: text(0).ok_or_else(short)?.to_vec(),
            op: names.get(text(1).ok_or_else(short)?)?,
            missing: flag(0).ok_or_else(short)?,
            fetched: flag(1).ok_or_else(short)?,
        };
        let name = names.get(text(2).ok_or_else(short)?)?;
        let (from, to) = (number()?, number()?);
        let stream = Stream { number: number()?, name };
        let (traces, machines) = (number()?, number()?);
        let (weight, rank) = (number()?, number()?);
        let mut parts = [0; PARTS];
        for part in &mut parts {
            *part = number()?;
        }
        let touches = Touches { traces, machines, weight, rank, stream, parts };
        if !touches.is_sound() || from > to {
            return Err(SummaryError::Corrupt("a row contradicts itself"));
        }
        Ok((key, Run { from, to, touches }))
    }
}

/// Names of operations and processes, of which few are different.
#[derive(Default)]
struct Names(Vec<Arc<str>>);

impl Names {
    /// Names that are looked at before one is taken for new.
    const LOOKED_AT: usize = 32;

    fn get(&mut self, name: &[u8]) -> Result<Arc<str>, SummaryError> {
        if let Some(known) = self.0.iter().find(|known| known.as_bytes() == name) {
            return Ok(known.clone());
        }
        let text = std::str::from_utf8(name);
        let new: Arc<str> = text.map_err(|_| SummaryError::Corrupt("a name is no text"))?.into();
        self.0.truncate(Self::LOOKED_AT - 1);
        self.0.insert(0, new.clone());
        Ok(new)
    }
}

/// Writes a summary, group by group.
pub(crate) struct Writer {
    file: SerializedFileWriter<Summed>,
    waiting: Columns,
}

impl Writer {
    pub(crate) fn new(file: File, header: &Header) -> Result<Self, SummaryError> {
        let pair = |name: &str, value: String| KeyValue::new(name.to_string(), value);
        let metadata = vec![
            pair(VERSION_KEY, VERSION.to_string()),
            pair(TRACES_KEY, header.traces.to_string()),
            pair(MACHINES_KEY, header.machines.to_string()),
            pair(FORM_KEY, header.form.name().to_string()),
            pair(MIN_MACHINES_KEY, header.min_machines.to_string()),
        ];
        let path = ColumnPath::from(TEXTS[0].0);
        let mut properties = WriterProperties::builder()
            .set_created_by(format!("seekless summary {VERSION}"))
            .set_key_value_metadata(Some(metadata))
            .set_statistics_enabled(EnabledStatistics::None)
            .set_offset_index_disabled(true)
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, parquet::basic::Encoding::DELTA_BYTE_ARRAY);
        for name in ["offset", "end", "rank", "weight"] {
            let column = ColumnPath::from(name);
            properties = properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, parquet::basic::Encoding::DELTA_BINARY_PACKED);
        }
        let file = Summed { file, bytes: 0, sum: 0 };
        let file =
            SerializedFileWriter::new(file, Arc::new(schema()?), Arc::new(properties.build()))?;
        Ok(Self { file, waiting: Columns::default() })
    }

    pub(crate) fn write(&mut self, group: &Group) -> Result<(), SummaryError> {
        for run in &group.runs {
            self.waiting.push(&group.key, run);
            if self.waiting.len() == TOGETHER || self.waiting.text >= TEXT_TOGETHER {
                self.put()?;
            }
        }
        Ok(())
    }

    fn put(&mut self) -> Result<(), SummaryError> {
        let columns = std::mem::take(&mut self.waiting);
        let mut rows = self.file.next_row_group()?;
        for values in &columns.texts {
            put::<ByteArrayType>(&mut rows, values)?;
        }
        for values in &columns.flags {
            put::<BoolType>(&mut rows, values)?;
        }
        for values in &columns.numbers {
            put::<Int64Type>(&mut rows, values)?;
        }
        rows.close()?;
        Ok(())
    }

    /// Completes the file.
    pub(crate) fn finish(mut self) -> Result<(), SummaryError> {
        if self.waiting.len() > 0 {
            self.put()?;
        }
        self.file.flush()?;
        let Summed { bytes, sum, .. } = self.file.inner();
        let pairs = [(BYTES_KEY, bytes.to_string()), (SUM_KEY, sum.to_string())];
        for (name, value) in pairs {
            self.file.append_key_value_metadata(KeyValue::new(name.to_string(), value));
        }
        self.file.close()?;
        Ok(())
    }
}

/// A file that is written, and the sum of its bytes.
struct Summed {
    file: File,
    bytes: u64,
    sum: u32,
}

impl Write for Summed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        let bytes = bytes.get(..written).unwrap_or_default();
        self.sum = crc32c::crc32c_append(self.sum, bytes);
        self.bytes += bytes.len() as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn put<T: DataType>(
    rows: &mut SerializedRowGroupWriter<'_, Summed>,
    values: &[T::T],
) -> Result<(), ParquetError> {
    let missing = || ParquetError::General("the schema has too few columns".into());
    let mut column = rows.next_column()?.ok_or_else(missing)?;
    column.typed::<T>().write_batch(values, None, None)?;
    column.close()
}

/// Reads a summary, group by group.
pub(crate) struct Reader {
    file: SerializedFileReader<File>,
    header: Header,
    next_part: usize,
    columns: Columns,
    at: usize,
    names: Names,
    /// The first row of the next group.
    ahead: Option<(Key, Run)>,
}

impl Reader {
    pub(crate) fn new(mut file: File) -> Result<Self, SummaryError> {
        let mut magic = Vec::new();
        file.rewind()?;
        (&file).take(4).read_to_end(&mut magic)?;
        if magic != MAGIC {
            return Err(SummaryError::NoSummary);
        }
        let data = file.try_clone()?;
        let open = || {
            SerializedFileReader::new(file).map_err(|error| match error {
                // The description of the file is at its end.
                ParquetError::EOF(_) | ParquetError::General(_) | ParquetError::NeedMoreData(_) => {
                    SummaryError::Corrupt("cut short, or its end is damaged")
                }
                error => error.into(),
            })
        };
        let file = guarded(open)?;
        let header = guarded(|| header(&file))?;
        verify(data, &file)?;
        let mut reader = Self {
            file,
            header,
            next_part: 0,
            columns: Columns::default(),
            at: 0,
            names: Names::default(),
            ahead: None,
        };
        reader.ahead = reader.row()?;
        Ok(reader)
    }

    pub(crate) const fn header(&self) -> &Header {
        &self.header
    }

    /// The key of the next group.
    pub(crate) fn key(&self) -> Option<&Key> {
        self.ahead.as_ref().map(|(key, _)| key)
    }

    pub(crate) fn group(&mut self) -> Result<Option<Group>, SummaryError> {
        let Some((key, first)) = self.ahead.take() else { return Ok(None) };
        let mut runs = vec![first];
        while let Some((next, run)) = self.row()? {
            if next != key {
                if next < key {
                    return Err(SummaryError::Corrupt("rows are out of order"));
                }
                self.ahead = Some((next, run));
                break;
            }
            let last = runs.last().expect("one at least");
            let follows = match self.header.form {
                Form::Exact => *last <= run,
                Form::Pages => last.to <= run.from,
            };
            if !follows {
                return Err(SummaryError::Corrupt("ranges are out of order"));
            }
            runs.push(run);
        }
        Ok(Some(Group { key, runs }))
    }

    fn row(&mut self) -> Result<Option<(Key, Run)>, SummaryError> {
        while self.at == self.columns.len() {
            if self.next_part == self.file.num_row_groups() {
                return Ok(None);
            }
            let (file, part) = (&self.file, self.next_part);
            self.columns = guarded(|| columns(file.get_row_group(part)?.as_ref()))?;
            (self.next_part, self.at) = (self.next_part + 1, 0);
        }
        self.at += 1;
        let (key, run) = self.columns.row(self.at - 1, &mut self.names)?;
        let Touches { traces, machines, .. } = run.touches;
        if traces > self.header.traces || machines > self.header.machines {
            return Err(SummaryError::Corrupt("a row has more traces or machines than the file"));
        }
        Ok(Some((key, run)))
    }
}

/// Compares the sum of the data with the one that was written.
fn verify(mut data: File, file: &SerializedFileReader<File>) -> Result<(), SummaryError> {
    let incomplete = SummaryError::Corrupt("its header is incomplete");
    let number = |name: &str| value(file, name)?.parse::<u64>().ok();
    let (Some(bytes), Some(wanted)) = (number(BYTES_KEY), number(SUM_KEY)) else {
        return Err(incomplete);
    };
    data.rewind()?;
    let mut data = data.take(bytes);
    let (mut sum, mut part) = (0, vec![0; 64 << 10]);
    loop {
        let read = data.read(&mut part)?;
        if read == 0 {
            break;
        }
        sum = crc32c::crc32c_append(sum, part.get(..read).unwrap_or_default());
    }
    if data.limit() > 0 || u64::from(sum) != wanted {
        return Err(SummaryError::Corrupt("the sum of its data is another"));
    }
    Ok(())
}

/// A value of the file's metadata.
fn value<'a>(file: &'a SerializedFileReader<File>, name: &str) -> Option<&'a str> {
    let pairs = file.metadata().file_metadata().key_value_metadata()?;
    pairs.iter().find(|pair| pair.key == name)?.value.as_deref()
}

fn header(file: &SerializedFileReader<File>) -> Result<Header, SummaryError> {
    let metadata = file.metadata().file_metadata();
    let value = |name: &str| value(file, name);
    let version = value(VERSION_KEY).ok_or(SummaryError::NoSummary)?;
    if version != VERSION.to_string() {
        return Err(SummaryError::Version(version.to_string()));
    }
    let broken = SummaryError::Corrupt("its header is incomplete");
    let number = |name: &str| value(name).and_then(|value| value.parse::<u64>().ok());
    let (Some(traces), Some(machines), Some(min_machines), Some(form)) = (
        number(TRACES_KEY),
        number(MACHINES_KEY),
        number(MIN_MACHINES_KEY),
        value(FORM_KEY).and_then(Form::named),
    ) else {
        return Err(broken);
    };
    let wanted = schema()?;
    let found = metadata.schema_descr().root_schema().get_fields();
    let wanted = wanted.get_fields();
    let is_same = found.len() == wanted.len()
        && found.iter().zip(wanted).all(|(found, wanted)| {
            found.name() == wanted.name()
                && found.is_primitive()
                && found.get_physical_type() == wanted.get_physical_type()
                && !found.is_optional()
        });
    if !is_same {
        return Err(SummaryError::Corrupt("it has other columns"));
    }
    Ok(Header { traces, machines, form, min_machines })
}

fn columns(rows: &dyn RowGroupReader) -> Result<Columns, SummaryError> {
    let count = usize::try_from(rows.metadata().num_rows());
    let count = count.map_err(|_| SummaryError::Corrupt("a part has less than no rows"))?;
    if count > TOGETHER {
        return Err(SummaryError::Corrupt("a part has too many rows"));
    }
    let mut columns = Columns::default();
    let mut number = 0;
    for values in &mut columns.texts {
        let mut column = column::<ByteArrayType>(rows, &mut number)?;
        while values.len() < count {
            let decoded = values.len();
            decode(&mut column, TEXTS_AT_ONCE.min(count - decoded), values)?;
            columns.text += values.iter().skip(decoded).map(ByteArray::len).sum::<usize>();
            if columns.text > MOST_TEXT {
                return Err(SummaryError::Corrupt("a part has too much text"));
            }
        }
    }
    for values in &mut columns.flags {
        decode(&mut column::<BoolType>(rows, &mut number)?, count, values)?;
    }
    for values in &mut columns.numbers {
        decode(&mut column::<Int64Type>(rows, &mut number)?, count, values)?;
    }
    Ok(columns)
}

/// The next column of a part.
fn column<T: DataType>(
    rows: &dyn RowGroupReader,
    number: &mut usize,
) -> Result<ColumnReaderImpl<T>, SummaryError> {
    let description = rows.metadata().schema_descr().column(*number);
    let pages = Bounded { pages: rows.get_column_page_reader(*number)?, most: TOGETHER };
    *number += 1;
    Ok(get_typed_column_reader(get_column_reader(description, Box::new(pages))))
}

/// Appends the next values of a column.
fn decode<T: DataType>(
    column: &mut ColumnReaderImpl<T>,
    count: usize,
    values: &mut Vec<T::T>,
) -> Result<(), SummaryError> {
    let (read, _, _) = column.read_records(count, None, None, values)?;
    if read == count { Ok(()) } else { Err(SummaryError::Corrupt("columns of different lengths")) }
}

impl From<ParquetError> for SummaryError {
    fn from(error: ParquetError) -> Self {
        match error {
            ParquetError::External(error) => match error.downcast::<io::Error>() {
                Ok(error) => Self::Io(*error),
                Err(error) => Self::Parquet(error.to_string()),
            },
            error => Self::Parquet(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(traces: u64) -> Group {
        let key = Key { path: b"/a".to_vec(), op: "read".into(), missing: false, fetched: false };
        let once = Touches::once(1, 0, Stream { number: 0, name: "".into() });
        let touches = (1..traces).fold(once.clone(), |sum, _| sum.plus(&once).unwrap());
        Group { key, runs: vec![Run { from: 0, to: 4096, touches }] }
    }

    /// Reads what is written with a header.
    fn read(
        (traces, machines): (u64, u64),
        write: impl FnOnce(&mut Writer) -> Result<(), SummaryError>,
    ) -> Result<usize, SummaryError> {
        let file = tempfile::tempfile().unwrap();
        let header = Header { traces, machines, form: Form::Pages, min_machines: 0 };
        let mut writer = Writer::new(file.try_clone().unwrap(), &header).unwrap();
        write(&mut writer).unwrap();
        writer.finish().unwrap();
        let mut reader = Reader::new(file)?;
        let mut rows = 0;
        while let Some(group) = reader.group()? {
            rows += group.runs.len();
        }
        Ok(rows)
    }

    #[test]
    fn a_row_has_no_more_machines_than_the_file() {
        assert!(matches!(read((3, 3), |writer| writer.write(&group(3))), Ok(1)));
        for header in [(3, 2), (2, 3)] {
            let error = read(header, |writer| writer.write(&group(3))).unwrap_err();
            assert!(matches!(error, SummaryError::Corrupt(why) if why.contains("than the file")));
        }
    }

    #[test]
    fn a_part_has_a_limit_of_text() {
        let rows = |writer: &mut Writer,
                    put: fn(&mut Writer, &Group) -> Result<(), SummaryError>| {
            let mut group = group(1);
            (0..9000).try_for_each(|n| {
                group.key.path = format!("{}{n:04}", "/long".repeat(1600)).into();
                put(writer, &group)
            })
        };
        let read_by = |put| read((1, 1), |writer| rows(writer, put));
        assert!(matches!(read_by(Writer::write), Ok(9000)), "in several parts");
        let error = read_by(|writer, group| {
            writer.waiting.push(&group.key, &group.runs[0]);
            Ok(())
        });
        let error = error.unwrap_err();
        assert!(matches!(error, SummaryError::Corrupt("a part has too much text")), "{error}");
    }
}
