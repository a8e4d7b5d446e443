//! The files of a workflow: the one that is run, and those that it uses.

use super::{Problems, Workflow, read_one};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use windlass_core::name::QueueName;

/// How deep workflows may use each other.
const DEPTH_MAX: usize = 8;
/// How many files may be read.
const FILES_MAX: usize = 1_000;

/// Reads a file by its path, relative to the folder of the one that is run; says why it cannot.
pub(super) type Loader<'l> = &'l dyn Fn(&str) -> Result<String, String>;

/// The files that may be named, and those that were read.
pub(super) struct Files<'l> {
    loader: Option<Loader<'l>>,
    /// Where the first file lies, as it is shown in errors.
    folder: String,
    /// From the first file to the one that is being read, relative to that folder.
    chain: RefCell<Vec<String>>,
    /// A file reads the same for all who use it, but for the queue that they give it.
    read: RefCell<HashMap<Known, Option<Rc<Workflow>>>>,
    faulty: RefCell<Vec<Problems>>,
}

type Known = (String, Option<QueueName>);

impl<'l> Files<'l> {
    pub(super) fn new(file: &str, loader: Option<Loader<'l>>) -> Self {
        let (folder, name) = file.rfind('/').map_or(("", file), |slash| file.split_at(slash + 1));
        Self {
            loader,
            folder: folder.to_owned(),
            chain: RefCell::new(vec![name.to_owned()]),
            read: RefCell::default(),
            faulty: RefCell::default(),
        }
    }

    /// What is wrong with files that were used.
    pub(super) fn faulty(&self) -> Vec<Problems> {
        self.faulty.take()
    }

    /// The workflow in a file that is named by the one that is being read. What is wrong, and what to do.
    pub(super) fn open(&self, named: &str, queue: Option<&QueueName>) -> Result<Rc<Workflow>, (String, String)> {
        let Some(loader) = self.loader else {
            let help = "put its jobs here, or read the workflow from a file";
            return Err(("other files cannot be read from here".to_owned(), help.to_owned()));
        };
        let path = self.resolve(named)?;
        let mut chain = self.chain.borrow().clone();
        if let Some(first) = chain.iter().position(|known| *known == path) {
            chain.push(path);
            let message = format!("workflows use each other: {}", chain[first..].join(" → "));
            return Err((message, "take one of them out of the circle".to_owned()));
        }
        if chain.len() > DEPTH_MAX {
            let message = format!("workflows use each other deeper than {DEPTH_MAX}: {} → {path}", chain.join(" → "));
            return Err((message, "use it further up".to_owned()));
        }
        let known = (path.clone(), queue.cloned());
        let earlier = self.read.borrow().get(&known).cloned();
        let workflow = match earlier {
            Some(workflow) => workflow,
            None => {
                let workflow = self.load(loader, &path, queue)?;
                self.read.borrow_mut().insert(known, workflow.clone());
                workflow
            }
        };
        workflow.ok_or_else(|| (format!("there are faults in `{named}`"), "see there".to_owned()))
    }

    fn load(
        &self,
        loader: Loader<'_>,
        path: &str,
        queue: Option<&QueueName>,
    ) -> Result<Option<Rc<Workflow>>, (String, String)> {
        if self.read.borrow().len() >= FILES_MAX {
            return Err((format!("more than {FILES_MAX} files are used"), "put some of them together".to_owned()));
        }
        let text = loader(path).map_err(|error| {
            let help = "the path is relative to the file that names it";
            (format!("{}{path} cannot be read: {error}", self.folder), help.to_owned())
        })?;
        self.chain.borrow_mut().push(path.to_owned());
        let read = read_one(self, &format!("{}{path}", self.folder), &text, queue);
        self.chain.borrow_mut().pop();
        Ok(match read {
            Ok(workflow) => Some(Rc::new(workflow)),
            Err(problems) => {
                self.faulty.borrow_mut().push(problems);
                None
            }
        })
    }

    /// A path from the file that names it to one from the folder of the first file, which it must not leave.
    fn resolve(&self, named: &str) -> Result<String, (String, String)> {
        let wrong = |message: &str, help: &str| Err((message.to_owned(), help.to_owned()));
        if !(named.starts_with("./") || named.starts_with("../"))
            || named.contains(['\\', '\0'])
            || named.contains("${{")
        {
            return wrong("this names no file", "write it as ./other.yml, relative to this file");
        }
        let chain = self.chain.borrow();
        let own = chain.last().map_or("", String::as_str);
        let mut parts: Vec<&str> = own.split('/').collect();
        parts.pop();
        for part in named.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    if parts.pop().is_none() {
                        return wrong(
                            "this leaves the folder of the workflow that is run",
                            "keep what it uses beside it or below",
                        );
                    }
                }
                part => parts.push(part),
            }
        }
        Ok(parts.join("/"))
    }
}
