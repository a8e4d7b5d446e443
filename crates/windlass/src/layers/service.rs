//! A handler as a tower service, and a service as a handler.

use crate::context::{CallGuard, Ctx};
use crate::error::JobError;
use crate::handler::One;
use futures::future::BoxFuture;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;
use windlass_core::payload::Payload;

/// What a handler has returned, on its way to the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Returned(pub(super) Option<Payload>);

impl Returned {
    /// In its stored form; `None` when it is nothing.
    pub fn payload(&self) -> Option<&Payload> {
        self.0.as_ref()
    }
}

/// A handler of any job, as a tower service. It is always ready: the worker counts its slots itself.
#[derive(Clone)]
pub struct HandlerService(One);

impl Service<Ctx> for HandlerService {
    type Response = Returned;
    type Error = JobError;
    type Future = HandlerFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), JobError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, ctx: Ctx) -> HandlerFuture {
        let (ctx, call) = ctx.of_call();
        HandlerFuture { handler: (self.0)(ctx), _call: call }
    }
}

opaque_debug!(HandlerService);

/// A handler at work. When it is dropped, whatever the handler has left running, a thread perhaps, is told to stop.
pub struct HandlerFuture {
    handler: BoxFuture<'static, Result<Option<Payload>, JobError>>,
    _call: CallGuard,
}

impl Future for HandlerFuture {
    type Output = Result<Returned, JobError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.handler.as_mut().poll(cx).map_ok(Returned)
    }
}

opaque_debug!(HandlerFuture);

/// What a layer can be put around.
pub trait Inner: Service<Ctx, Response: Send, Error = JobError, Future: Send> + Clone + Send + 'static {}

impl<S: Service<Ctx, Response: Send, Error = JobError, Future: Send> + Clone + Send + 'static> Inner for S {}

/// A call of a service inside of layers.
pub(super) type Attempt<S> = BoxFuture<'static, Result<<S as Service<Ctx>>::Response, JobError>>;

/// A layer of ours: what it does about one attempt.
pub trait Wrap: Clone {
    /// Calls what is inside of it.
    fn call<S: Inner>(&self, inner: &mut S, ctx: Ctx) -> Attempt<S>;
}

/// A service with one of the layers of this module around it.
#[derive(Clone, Debug)]
pub struct Layered<L, S> {
    layer: L,
    inner: S,
}

impl<L: Wrap, S: Inner> Service<Ctx> for Layered<L, S> {
    type Response = S::Response;
    type Error = JobError;
    type Future = Attempt<S>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), JobError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, ctx: Ctx) -> Self::Future {
        self.layer.call(&mut self.inner, ctx)
    }
}

macro_rules! layers {
    ($($layer:ty),+) => {
        $(impl<S> Layer<S> for $layer {
            type Service = Layered<Self, S>;

            fn layer(&self, inner: S) -> Self::Service {
                Layered { layer: self.clone(), inner }
            }
        })+
    };
}
layers!(super::CatchPanic, super::Limit, super::Timeout, super::Trace);

/// Puts a layer around a handler.
pub(crate) type Around = Box<dyn Fn(One) -> One + Send>;

/// A layer, as a function of handlers.
pub(crate) fn around<L>(layer: L) -> Around
where
    L: Layer<HandlerService> + Send + 'static,
    L::Service: Service<Ctx, Response = Returned, Error = JobError> + Clone + Send + Sync + 'static,
    <L::Service as Service<Ctx>>::Future: Send,
{
    Box::new(move |route| {
        let service = layer.layer(HandlerService(route));
        Arc::new(move |ctx| {
            // A clone for each call, because a service is asked whether it is ready before it is called.
            let mut service = service.clone();
            Box::pin(async move {
                std::future::poll_fn(|cx| service.poll_ready(cx)).await?;
                service.call(ctx).await.map(|Returned(payload)| payload)
            })
        })
    })
}
