//! What SQLite says, in the words of the contract.

use rusqlite::ErrorCode;
use windlass_core::Error;

/// Translates; `Corrupt` for values that do not fit their column is a matter of one job, everything else of the whole call.
pub(crate) fn translate(error: &rusqlite::Error) -> Error {
    match error {
        rusqlite::Error::SqliteFailure(failure, message) => {
            let text = message.clone().unwrap_or_else(|| failure.to_string());
            from_code(failure.code, text)
        }
        rusqlite::Error::FromSqlConversionFailure(..)
        | rusqlite::Error::IntegralValueOutOfRange(..)
        | rusqlite::Error::Utf8Error(..)
        | rusqlite::Error::InvalidColumnType(..) => Error::corrupt(words(error)),
        other => Error::Unavailable { reason: other.to_string() },
    }
}

/// What is wrong with a value, without the driver's way of counting columns.
fn words(error: &rusqlite::Error) -> String {
    match error {
        rusqlite::Error::FromSqlConversionFailure(_, found, why) => format!("a value of type {found}: {why}"),
        rusqlite::Error::IntegralValueOutOfRange(_, value) => format!("the number {value} is out of range"),
        rusqlite::Error::Utf8Error(_, why) => format!("a text is not UTF-8: {why}"),
        rusqlite::Error::InvalidColumnType(_, name, found) => format!("`{name}` is of type {found}"),
        other => other.to_string(),
    }
}

fn from_code(code: ErrorCode, text: String) -> Error {
    match code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => {
            Error::Unavailable { reason: format!("another process holds the database ({text})") }
        }
        ErrorCode::ReadOnly => {
            let advice = "give this user the permission to write to both";
            Error::Unavailable { reason: format!("the database file or its folder is read-only ({text}); {advice}") }
        }
        ErrorCode::DiskFull => Error::Full { what: format!("the disk of the database ({text})") },
        ErrorCode::DatabaseCorrupt => Error::corrupt(format!(
            "the database file ({text}); restore it from a backup, or save what `.recover` finds"
        )),
        ErrorCode::NotADatabase => {
            Error::Incompatible { what: format!("the file is not an SQLite database ({text}); name another file") }
        }
        ErrorCode::CannotOpen => Error::Unavailable {
            reason: format!(
                "the database file cannot be opened ({text}); its folder must exist, and this user must be allowed to write to both"
            ),
        },
        ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied => {
            Error::Unavailable { reason: format!("no permission for the database file ({text})") }
        }
        ErrorCode::SystemIoFailure => {
            Error::Unknown { reason: format!("reading or writing the database failed ({text})") }
        }
        _ => Error::Unavailable { reason: text },
    }
}
