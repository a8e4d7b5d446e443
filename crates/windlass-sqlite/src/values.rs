//! How values of the contract stand in columns.

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use windlass_core::id::{JobId, RunId, Token};
use windlass_core::job::State;
use windlass_core::store::RunState;
use windlass_core::time::Timestamp;
use windlass_core::{Error, Result};

/// A value of the contract in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Col<T>(pub(crate) T);

fn unreadable(error: impl fmt::Display) -> FromSqlError {
    FromSqlError::Other(error.to_string().into())
}

/// A type that stands in a column as a number.
macro_rules! numbers {
    ($($type:ty: $write:expr, $read:expr;)+) => {$(
        impl ToSql for Col<$type> {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                let write: fn($type) -> i64 = $write;
                Ok(write(self.0).into())
            }
        }

        impl FromSql for Col<$type> {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                let (code, read): (_, fn(i64) -> Option<$type>) = (value.as_i64()?, $read);
                read(code).map(Self).ok_or(FromSqlError::OutOfRange(code))
            }
        }
    )+};
}
// Unsigned numbers of ours are below 2^63, except bit patterns, which keep their bits.
numbers! {
    u64: u64::cast_signed, |number| Some(number.cast_unsigned());
    Token: |token| token.bits().cast_signed(), |bits| Some(Token::from_bits(bits.cast_unsigned()));
    Timestamp: Timestamp::as_ms, |ms| Some(Timestamp::from_ms(ms));
    State: |state| place(&State::ALL, state), |code| State::ALL.get(usize::try_from(code).ok()?).copied();
    RunState: |state| place(&RunState::ALL, state), |code| RunState::ALL.get(usize::try_from(code).ok()?).copied();
}

/// The place of a value in a list that only grows at its end.
fn place<T: Copy + PartialEq>(all: &[T], wanted: T) -> i64 {
    all.iter().position(|one| *one == wanted).and_then(|place| i64::try_from(place).ok()).unwrap_or(i64::MAX)
}

/// A type that stands in a column as its text.
macro_rules! texts {
    ($($type:ty),+) => {$(
        impl ToSql for Col<$type> {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                Ok(self.0.to_string().into())
            }
        }

        impl FromSql for Col<$type> {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                value.as_str()?.parse().map(Self).map_err(unreadable)
            }
        }
    )+};
}
texts!(JobId, RunId);

/// A name, which is checked when it is read.
#[derive(Clone, Debug)]
pub(crate) struct Name<T>(pub(crate) T);

impl<T: for<'a> TryFrom<&'a str, Error = Error>> FromSql for Name<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        T::try_from(value.as_str()?).map(Self).map_err(unreadable)
    }
}

/// A value as JSON text.
#[derive(Clone, Debug)]
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromSql for Json<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        serde_json::from_str(value.as_str()?).map(Self).map_err(unreadable)
    }
}

/// `value` as JSON text.
pub(crate) fn json<T: Serialize + ?Sized>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::corrupt(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_an_error_and_not_a_panic() {
        let text = |text: &'static str| ValueRef::Text(text.as_bytes());
        assert!(Col::<State>::column_result(ValueRef::Integer(6)).is_err());
        assert!(Col::<State>::column_result(ValueRef::Integer(-1)).is_err());
        assert!(Col::<State>::column_result(text("ready")).is_err());
        assert!(Col::<JobId>::column_result(text("nonsense")).is_err());
        assert!(Col::<JobId>::column_result(ValueRef::Text(&[0xff])).is_err());
        assert!(Json::<Vec<u8>>::column_result(text("{")).is_err());
        assert_eq!(Col::<u64>::column_result(ValueRef::Integer(-1)).unwrap(), Col(u64::MAX));
    }
}
