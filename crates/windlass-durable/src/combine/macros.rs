//! `select!` and `join!`.

/// Waits for the first of up to eight futures and runs its handler.
///
/// Arms are written as with tokio: `pattern = future => handler`, with a comma after a handler that is not a block. The macro is
/// biased: of two futures that are ready, the one written first wins. The losers are dropped in written order before the
/// handler runs, so their calls are cancelled.
///
/// ```
/// use windlass_durable::{Error, Wf, select};
///
/// async fn at_most_an_hour(wf: Wf) -> Result<bool, Error> {
///     select! {
///         done = wf.call_named("report", 7.into()) => { done?; Ok(true) }
///         time = wf.sleep("1h") => { time?; Ok(false) }
///     }
/// }
/// ```
#[macro_export]
macro_rules! select {
    ($($arms:tt)+) => { $crate::__select!(@arms [] $($arms)+) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __select {
    // Normalizes the arms to (pattern, future, handler).
    (@arms [$($done:tt)*] $p:pat = $f:expr => $h:block, $($rest:tt)*) => { $crate::__select!(@arms [$($done)* ($p, $f, $h)] $($rest)*) };
    (@arms [$($done:tt)*] $p:pat = $f:expr => $h:block $($rest:tt)*) => { $crate::__select!(@arms [$($done)* ($p, $f, $h)] $($rest)*) };
    (@arms [$($done:tt)*] $p:pat = $f:expr => $h:expr, $($rest:tt)*) => { $crate::__select!(@arms [$($done)* ($p, $f, $h)] $($rest)*) };
    (@arms [$($done:tt)*] $p:pat = $f:expr => $h:expr) => { $crate::__select!(@arms [$($done)* ($p, $f, $h)]) };
    (@arms [$($done:tt)*]) => { $crate::__select!(@name [] [a b c d e f g h] [A B C D E F G H] [$($done)*]) };
    // Gives each arm a variable and a variant.
    (@name [$($done:tt)*] [$v:ident $($vs:ident)*] [$V:ident $($Vs:ident)*] [($p:pat, $f:expr, $h:expr) $($rest:tt)*]) => {
        $crate::__select!(@name [$($done)* ($v $V $p, $f, $h)] [$($vs)*] [$($Vs)*] [$($rest)*])
    };
    (@name [$(($v:ident $V:ident $p:pat, $f:expr, $h:expr))+] [$($vs:ident)*] [$($Vs:ident)*] []) => {{
        enum __Output<$($V),+> { $($V($V)),+ }
        let __output = {
            let __arms = $crate::__private::Arms::select();
            $( let $v = __arms.arm(stringify!($v)); )+
            $(
                let mut $v = ($v.clone(), {
                    let __scope = $v.enter();
                    let __future = $f;
                    ::core::mem::drop(__scope);
                    ::core::pin::pin!(::core::option::Option::Some(__future))
                });
            )+
            let __output = ::core::future::poll_fn(|__cx| {
                $(
                    if let ::core::option::Option::Some(__output) = $crate::__private::poll_arm(&$v.0, &mut $v.1, __cx) {
                        return ::core::task::Poll::Ready(__Output::$V(__output));
                    }
                )+
                ::core::task::Poll::Pending
            }).await;
            $( {
                let __scope = $v.0.enter();
                $v.1.set(::core::option::Option::None);
                ::core::mem::drop(__scope);
            } )+
            __output
        };
        match __output { $( __Output::$V($p) => $h ),+ }
    }};
    (@name [$($done:tt)*] [] [] [$($rest:tt)+]) => { ::core::compile_error!("`select!` takes at most 8 arms") };
}

/// Waits for up to eight futures and returns the tuple of their outputs. They are polled in written order.
///
/// ```
/// use windlass_durable::{Error, Wf, join};
///
/// async fn both(wf: Wf) -> Result<(), Error> {
///     let (ship, bill) = join!(wf.call_named("ship", 7.into()), wf.call_named("bill", 7.into()));
///     ship?;
///     bill?;
///     Ok(())
/// }
/// ```
#[macro_export]
macro_rules! join {
    ($($f:expr),+ $(,)?) => { $crate::__join!(@ [] [a b c d e f g h] [$(($f))+]) };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __join {
    (@ [$($done:tt)*] [$v:ident $($vs:ident)*] [($f:expr) $($rest:tt)*]) => {
        $crate::__join!(@ [$($done)* ($v $f)] [$($vs)*] [$($rest)*])
    };
    (@ [$(($v:ident $f:expr))+] [$($vs:ident)*] []) => {{
        let __arms = $crate::__private::Arms::join();
        $( let $v = __arms.arm(stringify!($v)); )+
        $(
            let mut $v = ($v.clone(), {
                let __scope = $v.enter();
                let __future = $f;
                ::core::mem::drop(__scope);
                ::core::pin::pin!(::core::option::Option::Some(__future))
            }, ::core::option::Option::None);
        )+
        ::core::future::poll_fn(|__cx| {
            $( if $v.2.is_none() { $v.2 = $crate::__private::poll_arm(&$v.0, &mut $v.1, __cx); } )+
            if $( $v.2.is_none() )||+ {
                return ::core::task::Poll::Pending;
            }
            match ($($v.2.take(),)+) {
                ($(::core::option::Option::Some($v),)+) => ::core::task::Poll::Ready(($($v,)+)),
                _ => ::core::task::Poll::Pending,
            }
        }).await
    }};
    (@ [$($done:tt)*] [] [$($rest:tt)+]) => { ::core::compile_error!("`join!` takes at most 8 futures; use `join_all`") };
}
