//! A file layer under SQLite that fails the n-th read, write or sync of this process.
//!
//! It is SQLite's own file layer with four functions replaced, registered as the default: every connection of this test
//! program uses it, the store's own included. Syncs do not reach the disk, which nothing here depends on.

#![allow(unsafe_code, reason = "a file layer of SQLite is a table of C functions; there is no safe way to give it one")]

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use windlass_sqlite::rusqlite::ffi::{
    SQLITE_FULL, SQLITE_IOERR_FSYNC, SQLITE_IOERR_READ, SQLITE_IOERR_WRITE, SQLITE_OK, sqlite3_file, sqlite3_int64,
    sqlite3_io_methods, sqlite3_vfs, sqlite3_vfs_find, sqlite3_vfs_register,
};

/// What fails, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// A read fails.
    Read,
    /// A write fails and writes nothing.
    Write,
    /// A write fails when half of it is written.
    TornWrite,
    /// The disk is full.
    Full,
    /// A sync fails.
    Sync,
}

/// The operations of a file that are counted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Read,
    Write,
    Sync,
}

impl Fault {
    pub(crate) const ALL: [Self; 5] = [Self::Read, Self::Write, Self::TornWrite, Self::Full, Self::Sync];

    fn operation(self) -> Operation {
        match self {
            Self::Read => Operation::Read,
            Self::Write | Self::TornWrite | Self::Full => Operation::Write,
            Self::Sync => Operation::Sync,
        }
    }

    fn code(self) -> c_int {
        match self {
            Self::Read => SQLITE_IOERR_READ,
            Self::Write | Self::TornWrite => SQLITE_IOERR_WRITE,
            Self::Full => SQLITE_FULL,
            Self::Sync => SQLITE_IOERR_FSYNC,
        }
    }
}

/// Which operations fail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) fault: Fault,
    /// The first operation of the fault's kind that fails, from 1.
    pub(crate) nth: u64,
    /// All later ones of its kind fail, too.
    pub(crate) lasting: bool,
}

#[derive(Default)]
struct State {
    plan: Option<Plan>,
    seen: u64,
    failed: u64,
}

static STATE: Mutex<State> = Mutex::new(State { plan: None, seen: 0, failed: 0 });

fn state() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Faults happen from now on.
pub(crate) fn start(plan: Plan) {
    *state() = State { plan: Some(plan), seen: 0, failed: 0 };
}

/// No faults happen from now on. Returns how many have happened.
pub(crate) fn stop() -> u64 {
    let mut state = state();
    state.plan = None;
    std::mem::take(&mut state.failed)
}

/// How many operations of the fault's kind there have been since the last start.
pub(crate) fn operations() -> u64 {
    state().seen
}

/// The fault that meets this operation.
fn next(operation: Operation) -> Option<Fault> {
    let mut state = state();
    let plan = state.plan.filter(|plan| plan.fault.operation() == operation)?;
    state.seen += 1;
    let fails = if plan.lasting { state.seen >= plan.nth } else { state.seen == plan.nth };
    state.failed += u64::from(fails);
    fails.then_some(plan.fault)
}

/// SQLite's own layer, by its address.
static LAYER: OnceLock<usize> = OnceLock::new();
/// The tables of functions with ours in them, by the addresses of SQLite's own.
static TABLES: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());
/// The functions that are replaced. All tables of SQLite's Unix layer have the same ones.
static ORIGINAL: OnceLock<sqlite3_io_methods> = OnceLock::new();

/// Makes it the file layer of this process, once.
pub(crate) fn register() {
    LAYER.get_or_init(|| {
        // SAFETY: the default layer exists for as long as the process; its copy is leaked, so it does, too.
        unsafe {
            let original = sqlite3_vfs_find(std::ptr::null());
            let ours = Box::leak(Box::new(sqlite3_vfs { zName: c"faults".as_ptr(), xOpen: Some(open), ..*original }));
            assert_eq!(sqlite3_vfs_register(ours, 1), SQLITE_OK);
            original as usize
        }
    });
}

unsafe extern "C" fn open(
    _: *mut sqlite3_vfs,
    name: *const std::ffi::c_char,
    file: *mut sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    let original = *LAYER.wait() as *mut sqlite3_vfs;
    // SAFETY: SQLite's own function is called with SQLite's own arguments; afterwards `file` is one of its files.
    unsafe {
        let Some(open) = (*original).xOpen else { return SQLITE_IOERR_READ };
        let answer = open(original, name, file, flags, out);
        if answer == SQLITE_OK && !(*file).pMethods.is_null() {
            (*file).pMethods = replaced((*file).pMethods);
        }
        answer
    }
}

/// The table of functions with ours in it, made once for each of SQLite's own.
unsafe fn replaced(methods: *const sqlite3_io_methods) -> *const sqlite3_io_methods {
    let mut tables = TABLES.lock().unwrap_or_else(PoisonError::into_inner);
    let ours = tables.entry(methods as usize).or_insert_with(|| {
        // SAFETY: a table of SQLite is static.
        let original = ORIGINAL.get_or_init(|| unsafe { *methods });
        let ours = sqlite3_io_methods {
            xRead: Some(read),
            xWrite: Some(write),
            xTruncate: Some(truncate),
            xSync: Some(sync),
            // SAFETY: as above.
            ..unsafe { *methods }
        };
        assert_eq!(original.xRead.map(|read| read as usize), unsafe { *methods }.xRead.map(|read| read as usize));
        Box::leak(Box::new(ours)) as *const sqlite3_io_methods as usize
    });
    *ours as *const sqlite3_io_methods
}

unsafe extern "C" fn read(file: *mut sqlite3_file, to: *mut c_void, amount: c_int, at: sqlite3_int64) -> c_int {
    match (next(Operation::Read), ORIGINAL.get().and_then(|original| original.xRead)) {
        // SAFETY: SQLite's own function with its own arguments.
        (None, Some(read)) => unsafe { read(file, to, amount, at) },
        (fault, _) => fault.unwrap_or(Fault::Read).code(),
    }
}

unsafe extern "C" fn write(file: *mut sqlite3_file, from: *const c_void, amount: c_int, at: sqlite3_int64) -> c_int {
    let Some(write) = ORIGINAL.get().and_then(|original| original.xWrite) else { return SQLITE_IOERR_WRITE };
    match next(Operation::Write) {
        // SAFETY: SQLite's own function with its own arguments.
        None => unsafe { write(file, from, amount, at) },
        Some(fault) => {
            if fault == Fault::TornWrite {
                // SAFETY: as above, with less of the same memory.
                unsafe { write(file, from, amount / 2, at) };
            }
            fault.code()
        }
    }
}

unsafe extern "C" fn truncate(file: *mut sqlite3_file, size: sqlite3_int64) -> c_int {
    match (next(Operation::Write), ORIGINAL.get().and_then(|original| original.xTruncate)) {
        // SAFETY: SQLite's own function with its own arguments.
        (None, Some(truncate)) => unsafe { truncate(file, size) },
        (fault, _) => fault.unwrap_or(Fault::Write).code(),
    }
}

unsafe extern "C" fn sync(_: *mut sqlite3_file, _: c_int) -> c_int {
    next(Operation::Sync).map_or(SQLITE_OK, Fault::code)
}
