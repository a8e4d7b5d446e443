//! Layers of a worker.

use super::WorkerBuilder;
use crate::context::Ctx;
use crate::error::JobError;
use crate::handler::Route;
use crate::layers::{Around, HandlerService, Returned, around};
use std::sync::Arc;
use tower_layer::Layer;
use tower_service::Service;

impl WorkerBuilder {
    /// Puts a layer around all handlers of this worker, whenever they are added. The first one is the outermost. See
    /// [`layers`](crate::layers). Handlers of batches are left alone: a layer sees one job at a time.
    pub fn layer<L>(self, layer: L) -> Self
    where
        L: Layer<HandlerService> + Send + 'static,
        L::Service: Service<Ctx, Response = Returned, Error = JobError> + Clone + Send + Sync + 'static,
        <L::Service as Service<Ctx>>::Future: Send,
    {
        self.layered(None, around(layer))
    }

    /// Puts a layer around the last handler alone, inside of those around all of them. Not for handlers of batches: a layer
    /// sees one job at a time.
    pub fn handler_layer<L>(mut self, layer: L) -> Self
    where
        L: Layer<HandlerService> + Send + 'static,
        L::Service: Service<Ctx, Response = Returned, Error = JobError> + Clone + Send + Sync + 'static,
        <L::Service as Service<Ctx>>::Future: Send,
    {
        let last = self.handlers.len().checked_sub(1);
        match (last, self.handlers.last().map(|(_, handled, _)| &handled.route)) {
            (Some(last), Some(Route::One(_))) => self.layered(Some(last), around(layer)),
            _ => {
                self.wrong = Some("handler_layer");
                self
            }
        }
    }

    fn layered(mut self, handler: Option<usize>, layer: Around) -> Self {
        self.layers.push((handler, layer));
        self
    }

    /// Those of a handler inside, those of all outside.
    pub(super) fn put_layers(&mut self) {
        for (at, (_, handled, _)) in self.handlers.iter_mut().enumerate() {
            for whose in [Some(at), None] {
                for (_, layer) in self.layers.iter().rev().filter(|(handler, _)| *handler == whose) {
                    if let Route::One(route) = &mut handled.route {
                        *route = layer(Arc::clone(route));
                    }
                }
            }
        }
    }
}
