//! The table of runs as Parquet: names as strings, counts as unsigned 64-bit
//! integers, seconds as doubles, no value missing. The same runs give the same
//! bytes.

use crate::LabError;
use crate::run::VERSION;
use crate::table::{Column, RunTable, Values};
use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::Type;
use std::sync::Arc;

/// The bytes of a Parquet file.
///
/// # Errors
/// [`LabError::Io`] if the library refuses the table, which no [`RunTable`] makes it do.
pub fn parquet(table: &RunTable) -> Result<Vec<u8>, LabError> {
    write(table).map_err(|error| LabError::Io {
        path: "runs.parquet".into(),
        source: std::io::Error::other(error),
    })
}

fn write(table: &RunTable) -> Result<Vec<u8>, ParquetError> {
    let fields = table.columns().iter().map(field).collect::<Result<_, _>>()?;
    let schema = Type::group_type_builder("run").with_fields(fields).build()?;
    let properties =
        WriterProperties::builder().set_created_by(format!("seekless version {VERSION}")).build();
    let mut bytes = Vec::new();
    let mut file = SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::new(properties))?;
    let mut rows = file.next_row_group()?;
    for (_, values) in table.columns() {
        let missing = || ParquetError::General("the schema has too few columns".into());
        let mut column = rows.next_column()?.ok_or_else(missing)?;
        put(values, &mut column)?;
        column.close()?;
    }
    rows.close()?;
    file.close()?;
    Ok(bytes)
}

fn field((name, values): &Column) -> Result<Arc<Type>, ParquetError> {
    let (physical, logical) = match values {
        Values::Text(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
        Values::Whole(_) => (Physical::INT64, Some(LogicalType::integer(64, false))),
        Values::Real(_) => (Physical::DOUBLE, None),
    };
    let field = Type::primitive_type_builder(name, physical).with_logical_type(logical);
    Ok(Arc::new(field.with_repetition(Repetition::REQUIRED).build()?))
}

fn put(values: &Values, column: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
    match values {
        Values::Text(all) => {
            let all: Vec<ByteArray> =
                all.iter().map(|name| name.as_bytes().to_vec().into()).collect();
            column.typed::<ByteArrayType>().write_batch(&all, None, None)?;
        }
        Values::Whole(all) => {
            // Unsigned ones have the bits of signed ones there.
            let all: Vec<i64> = all.iter().map(|number| number.cast_signed()).collect();
            column.typed::<Int64Type>().write_batch(&all, None, None)?;
        }
        Values::Real(all) => {
            column.typed::<DoubleType>().write_batch(all, None, None)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tests::run;

    #[test]
    fn the_same_runs_give_the_same_bytes() {
        let table = || RunTable::of(&[run(2, 0, "s"), run(1, 0, "s")]);
        let bytes = parquet(&table()).unwrap();
        assert_eq!(bytes, parquet(&table()).unwrap());
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
        assert_ne!(bytes, parquet(&RunTable::of(&[run(3, 0, "s")])).unwrap());
        assert!(parquet(&RunTable::of(&[])).is_ok());
    }
}
