//! How values become bytes: a version, then the fields in their order, numbers little-endian, whatever has a length
//! behind its length. Settings and the like are JSON inside, because people change them and they only grow.
//!
//! Reading trusts nothing: bytes that are cut short, too long or senseless are `Corrupt`.

use crate::error::{Error, Result};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};

/// The version of all values; a value of another one is not guessed at.
const VERSION: u8 = 1;

/// Something that can be a value, or a field of one.
pub(super) trait Stored: Sized {
    /// Writes it.
    fn write(&self, to: &mut Vec<u8>) -> Result<()>;
    /// Reads it.
    fn read(from: &mut Reader<'_>) -> Result<Self>;
}

/// A whole value.
pub(super) fn encode(value: &impl Stored) -> Result<Vec<u8>> {
    let mut bytes = vec![VERSION];
    value.write(&mut bytes)?;
    Ok(bytes)
}

/// A whole value: nothing may be left over.
pub(super) fn decode<T: Stored>(bytes: &[u8]) -> Result<T> {
    let mut reader = Reader(bytes);
    if reader.array()? != [VERSION] {
        return Err(damaged("its version is not known"));
    }
    let value = T::read(&mut reader)?;
    if reader.0.is_empty() { Ok(value) } else { Err(damaged("it is longer than it should be")) }
}

pub(super) fn damaged(how: &str) -> Error {
    Error::corrupt(format!("a value cannot be read: {how}"))
}

/// What is left to be read.
#[derive(Debug)]
pub(super) struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    /// True when nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn slice(&mut self, len: usize) -> Result<&'b [u8]> {
        let (head, tail) = self.0.split_at_checked(len).ok_or_else(|| damaged("it is cut short"))?;
        self.0 = tail;
        Ok(head)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.slice(N)?.try_into().map_err(|_| damaged("it is cut short"))
    }

    /// Bytes behind their length.
    pub(super) fn bytes(&mut self) -> Result<&'b [u8]> {
        let len = u32::from_le_bytes(self.array()?);
        self.slice(usize::try_from(len).map_err(|_| damaged("it is too long"))?)
    }

    pub(super) fn text(&mut self) -> Result<&'b str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| damaged("a text is not UTF-8"))
    }

    pub(super) fn json<T: DeserializeOwned>(&mut self) -> Result<T> {
        serde_json::from_slice(self.bytes()?).map_err(|error| damaged(&error.to_string()))
    }
}

/// Bytes behind their length.
pub(super) fn write_bytes(bytes: &[u8], to: &mut Vec<u8>) -> Result<()> {
    let max = u64::from(u32::MAX);
    let len = u32::try_from(bytes.len()).map_err(|_| Error::limit("a stored value", max, bytes.len() as u64))?;
    to.extend(len.to_le_bytes());
    to.extend(bytes);
    Ok(())
}

pub(super) fn write_json(value: &impl Serialize, to: &mut Vec<u8>) -> Result<()> {
    let text = serde_json::to_vec(value).map_err(|error| Error::invalid("value", error.to_string()))?;
    write_bytes(&text, to)
}

/// A struct, field by field. The compiler notices one that is missing. Values of earlier versions end before the fields that
/// were added, and have the defaults that are given here.
macro_rules! stored {
    ($type:ident { $($field:ident),+ $(,)? }) => {
        $crate::kv::codec::stored!($type { $($field),+ } added {});
    };
    ($type:ident { $($field:ident),+ $(,)? } added { $($new:ident: $default:expr),* $(,)? }) => {
        impl $crate::kv::codec::Stored for $type {
            fn write(&self, to: &mut Vec<u8>) -> $crate::error::Result<()> {
                $($crate::kv::codec::Stored::write(&self.$field, to)?;)+
                $($crate::kv::codec::Stored::write(&self.$new, to)?;)*
                Ok(())
            }

            fn read(from: &mut $crate::kv::codec::Reader<'_>) -> $crate::error::Result<Self> {
                Ok(Self {
                    $($field: $crate::kv::codec::Stored::read(from)?,)+
                    $($new: if from.is_empty() { $default } else { $crate::kv::codec::Stored::read(from)? },)*
                })
            }
        }
    };
}
pub(super) use stored;

macro_rules! stored_numbers {
    ($($number:ident),+) => {
        $(impl Stored for $number {
            fn write(&self, to: &mut Vec<u8>) -> Result<()> {
                to.extend(self.to_le_bytes());
                Ok(())
            }

            fn read(from: &mut Reader<'_>) -> Result<Self> {
                from.array().map(Self::from_le_bytes)
            }
        })+
    };
}
stored_numbers!(u8, u16, i16, u32, u64, i64, u128);

impl Stored for () {
    fn write(&self, _: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }

    fn read(_: &mut Reader<'_>) -> Result<Self> {
        Ok(())
    }
}

impl Stored for bool {
    fn write(&self, to: &mut Vec<u8>) -> Result<()> {
        u8::from(*self).write(to)
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        match u8::read(from)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(damaged("a yes or no is neither")),
        }
    }
}

impl<const N: usize> Stored for [u8; N] {
    fn write(&self, to: &mut Vec<u8>) -> Result<()> {
        to.extend(self);
        Ok(())
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        from.array()
    }
}

impl Stored for Bytes {
    fn write(&self, to: &mut Vec<u8>) -> Result<()> {
        write_bytes(self, to)
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        from.bytes().map(Self::copy_from_slice)
    }
}

impl<T: Stored> Stored for Option<T> {
    fn write(&self, to: &mut Vec<u8>) -> Result<()> {
        self.is_some().write(to)?;
        self.as_ref().map_or(Ok(()), |value| value.write(to))
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        if bool::read(from)? { T::read(from).map(Some) } else { Ok(None) }
    }
}

impl<T: Stored> Stored for Vec<T> {
    fn write(&self, to: &mut Vec<u8>) -> Result<()> {
        let max = u64::from(u32::MAX);
        u32::try_from(self.len()).map_err(|_| Error::limit("a stored list", max, self.len() as u64))?.write(to)?;
        self.iter().try_for_each(|item| item.write(to))
    }

    fn read(from: &mut Reader<'_>) -> Result<Self> {
        // A length that is damaged ends at the bytes' end; it never sizes an allocation.
        (0..u32::read(from)?).map(|_| T::read(from)).collect()
    }
}

macro_rules! stored_tuples {
    ($(($($part:ident $at:tt),+))+) => {
        $(impl<$($part: Stored),+> Stored for ($($part,)+) {
            fn write(&self, to: &mut Vec<u8>) -> Result<()> {
                $(self.$at.write(to)?;)+
                Ok(())
            }

            fn read(from: &mut Reader<'_>) -> Result<Self> {
                Ok(($($part::read(from)?,)+))
            }
        })+
    };
}
stored_tuples! { (A 0, B 1) (A 0, B 1, C 2) }
