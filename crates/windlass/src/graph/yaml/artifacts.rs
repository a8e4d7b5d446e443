//! What jobs leave for each other, and which of them may not run side by side.

use super::draw::Problem;
use super::fields::Reader;
use super::jobs::check_id;
use super::names::Names;
use super::tree::{Key, Tree, Value};
use serde_json::{Map, Value as Json, json};
use windlass_core::graph::Template;

/// How an expression begins in a text.
const TEMPLATE: &str = "${{";

/// Artifacts, as the runner of commands takes them: `{"upload": {"dist": ["target/x"]}, "download": {"dist": "."}}`.
pub(super) fn read(reader: &Reader<'_>, tree: &Tree<'_>, names: &Names<'_>) -> Option<Json> {
    let fields = reader.fields(tree, "artifacts", &["upload", "download"])?;
    let upload = fields.get("upload").map(|tree| read_upload(reader, tree, names));
    let download = fields.get("download").map(|tree| read_download(reader, tree, names));
    let mut artifacts = Map::new();
    for (name, map) in [("upload", upload), ("download", download)] {
        if let Some(map) = map {
            artifacts.insert(name.to_owned(), Json::Object(map?));
        }
    }
    Some(Json::Object(artifacts))
}

fn read_upload(reader: &Reader<'_>, tree: &Tree<'_>, names: &Names<'_>) -> Option<Map<String, Json>> {
    let mut upload = Map::new();
    for (key, tree) in reader.map(tree)? {
        check_name(reader, key, names);
        let files: Vec<_> = reader.texts(tree)?.into_iter().map(|(_, one)| path(reader, one)).collect();
        if files.is_empty() {
            reader.refuse::<()>(tree, "there are no files", "write a path, or a list of them");
        }
        let files: Vec<&str> = files.into_iter().flatten().collect();
        upload.insert(key.text.to_string(), json!(files));
    }
    Some(upload)
}

fn read_download(reader: &Reader<'_>, tree: &Tree<'_>, names: &Names<'_>) -> Option<Map<String, Json>> {
    let mut download = Map::new();
    if let Value::Map(map) = &tree.value {
        for (key, tree) in map.iter() {
            check_name(reader, key, names);
            let folder = if tree.is_nothing() { "." } else { path(reader, tree).unwrap_or(".") };
            download.insert(key.text.to_string(), json!(folder));
        }
    } else {
        for (name, tree) in reader.texts(tree)? {
            // What a template says was looked at with the other values.
            if !name.contains(TEMPLATE) {
                check_id(reader, name, &tree.span, "an artifact");
            }
            if download.insert(name.to_owned(), json!(".")).is_some() {
                reader.say(Problem::new(tree.span.clone(), format!("`{name}` is downloaded twice")));
            }
        }
    }
    Some(download)
}

/// A name that is a template is filled in for each row, and looked at then.
fn check_name(reader: &Reader<'_>, key: &Key<'_>, names: &Names<'_>) {
    if key.text.contains(TEMPLATE) {
        names.check_all(reader, &key.tree());
    } else {
        check_id(reader, &key.text, &key.span, "an artifact");
    }
}

/// A path below the folder in which the job runs.
fn path<'y>(reader: &Reader<'_>, tree: &'y Tree<'y>) -> Option<&'y str> {
    let text = reader.text(tree)?;
    if text.trim().is_empty() || tree.is_nothing() {
        return reader.refuse(tree, "a path was expected here", "write one, relative to where the job runs");
    }
    if text.starts_with('/') || text.split('/').any(|part| part == "..") {
        let help = "write one that is relative to it, without ..";
        return reader.refuse(tree, "this leads out of the folder in which the job runs", help);
    }
    Some(text)
}

/// The group of jobs of which only so many run at once, and how many.
pub(super) fn read_concurrency(reader: &Reader<'_>, tree: &Tree<'_>) -> Option<(Template, u32)> {
    let Value::Map(_) = &tree.value else { return Some((read_group(reader, tree)?, 1)) };
    let fields = reader.fields(tree, "concurrency", &["group", "max"])?;
    let Some(group) = fields.get("group") else {
        return reader.refuse(tree, "concurrency needs a group", "write group: and a name for those that share it");
    };
    let most = match fields.get("max") {
        Some(tree) => reader.whole(tree, 1, i64::from(u32::MAX))?,
        None => 1,
    };
    Some((read_group(reader, group)?, u32::try_from(most).ok()?))
}

fn read_group(reader: &Reader<'_>, tree: &Tree<'_>) -> Option<Template> {
    let template = reader.template(tree)?;
    // A text without expressions is the name itself, and can be looked at now.
    if template.exprs().next().is_none() {
        reader.name::<windlass_core::name::GroupName, _>(tree)?;
    }
    Some(template)
}
