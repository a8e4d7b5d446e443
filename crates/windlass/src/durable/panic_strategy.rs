/// True if a panic unwinds the stack. A test compiles this file by itself with both settings of the compiler.
pub(crate) const UNWINDS: bool = cfg!(panic = "unwind");
