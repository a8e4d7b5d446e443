//! The rows of a job.

use super::fields::Reader;
use super::names::Columns;
use super::tree::{Tree, Value};
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use windlass_core::graph::{MATRIX_MAX, Matrix, Source};
use windlass_core::store::DEFINITION_BYTES_MAX;

pub(super) fn read_strategy(reader: &Reader<'_>, tree: &Tree<'_>) -> Option<(Matrix, Columns)> {
    let fields = reader.fields(tree, "a strategy", &["matrix", "fail-fast", "max-parallel"])?;
    let Some(rows) = fields.get("matrix") else {
        return reader.refuse(tree, "a strategy needs a matrix", "write matrix: and under it a list for each name");
    };
    let (source, columns) = match &rows.value {
        Value::Scalar { .. } => (Source::From(reader.expr(rows)?), Columns::Unknown),
        _ => {
            let rows = read_rows(reader, rows)?;
            let columns = rows.iter().flat_map(Map::keys).cloned().collect();
            (Source::Rows(rows), Columns::These(columns))
        }
    };
    let fail_fast = fields.get("fail-fast").and_then(|tree| reader.bool(tree)).unwrap_or(true);
    let most = fields.get("max-parallel").and_then(|tree| reader.whole(tree, 1, i64::from(u32::MAX)));
    let parallel_max = most.and_then(|most| u32::try_from(most).ok());
    Some((Matrix { source, fail_fast, parallel_max }, columns))
}

/// Every combination of the lists, without those that are excluded, with those that are included.
fn read_rows(reader: &Reader<'_>, tree: &Tree<'_>) -> Option<Vec<Map<String, Json>>> {
    let (mut rows, mut bytes) = (vec![Map::new()], 0_usize);
    let (mut include, mut exclude, mut any) = (Vec::new(), Vec::new(), false);
    for (key, tree) in reader.map(tree)? {
        match key.text.as_ref() {
            "include" => include = read_maps(reader, tree)?.into_iter().zip(reader.list(tree)?).collect(),
            "exclude" => exclude = read_maps(reader, tree)?,
            _ => {
                any = true;
                let values = reader.list(tree)?;
                reader.json(tree)?;
                if rows.len().saturating_mul(values.len()) > MATRIX_MAX {
                    let message = format!("the matrix has more than {MATRIX_MAX} rows");
                    return reader.refuse(tree, &message, "make it smaller, or split the job");
                }
                // Every row so far comes once with each value.
                let in_values = values.iter().map(|value| key.text.len() + value.bytes).sum::<usize>();
                bytes = bytes.saturating_mul(values.len()).saturating_add(rows.len().saturating_mul(in_values));
                check_bytes(reader, tree, bytes)?;
                let with = |row: &Map<String, Json>, value: &Tree<'_>| {
                    let mut row = row.clone();
                    row.insert(key.text.to_string(), value.json());
                    row
                };
                rows = rows.iter().flat_map(|row| values.iter().map(move |value| with(row, value))).collect();
            }
        }
    }
    if !any {
        rows.clear();
    }
    let agrees =
        |row: &Map<String, Json>, with: &Map<String, Json>| with.iter().all(|(key, value)| row.get(key) == Some(value));
    rows.retain(|row| !exclude.iter().any(|out| agrees(row, out)));
    let base: Vec<BTreeMap<String, Json>> = rows.iter().map(|row| row.clone().into_iter().collect()).collect();
    for (more, tree) in include {
        // It adds to the rows that it does not contradict, and is a row of its own where there are none.
        let fits = |row: &BTreeMap<String, Json>| {
            more.iter().all(|(key, value)| row.get(key).is_none_or(|known| known == value))
        };
        let shares = |row: &BTreeMap<String, Json>| more.keys().any(|key| row.contains_key(key));
        let places: Vec<usize> = (0..base.len()).filter(|&at| fits(&base[at]) && shares(&base[at])).collect();
        if places.is_empty() {
            rows.push(more);
        } else {
            bytes = bytes.saturating_add(places.len().saturating_mul(tree.bytes));
            check_bytes(reader, tree, bytes)?;
            places.into_iter().for_each(|at| rows[at].extend(more.clone()));
        }
    }
    Some(rows)
}

/// Refuses rows that come to more bytes than a run can hold, before they are made.
fn check_bytes(reader: &Reader<'_>, tree: &Tree<'_>, bytes: usize) -> Option<()> {
    if bytes <= DEFINITION_BYTES_MAX {
        return Some(());
    }
    let message = format!("the matrix comes to more than {DEFINITION_BYTES_MAX} bytes here");
    reader.refuse(tree, &message, "give its rows shorter values, such as the names of files")
}

fn read_maps(reader: &Reader<'_>, tree: &Tree<'_>) -> Option<Vec<Map<String, Json>>> {
    let maps = reader.list(tree)?.iter().map(|entry| {
        reader.map(entry)?;
        reader.json(entry)?.as_object().cloned()
    });
    maps.collect()
}
