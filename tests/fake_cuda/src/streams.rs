//! The order of work: streams, events, captures, and what the host waits for.

use std::thread::sleep;
use std::time::Duration;

use cudarc::driver::sys::CUresult;
use fake_cupti::Work;

use crate::call::{Outcome, context, fake};
use crate::effect::Effect;
use crate::graphs;
use crate::machine::{Event, Stream, machine};

/// Where a call's work goes.
pub(crate) enum Target {
    /// It runs now.
    Run(Stream),
    /// It became a node of the graph that its stream is captured into.
    Captured,
}

/// Finds out where work of this stream goes, and adds it to a graph if the stream is captured.
pub(crate) fn target(stream: u64, work: &Work, effect: Effect) -> Outcome<Target> {
    let found = machine().stream(stream)?;
    if let Some(graph) = found.capture {
        graphs::add_node(graph.into(), &found.place(work.clone()), effect)?;
        return Ok(Target::Captured);
    }
    order(found);
    Ok(Target::Run(found))
}

/// Has a stream begin no work before that of the default stream, and the default stream none before that of others.
fn order(stream: Stream) {
    if stream.is_apart {
        return;
    }
    let others = machine().streams_of(stream.context);
    let others = others.iter().filter(|other| {
        !other.is_apart && other.id != stream.id && (stream.is_default || other.is_default)
    });
    let end = others.map(|other| fake().stream_end_ns(other.id)).max();
    fake().delay_stream(stream.id, end.unwrap_or_default());
}

/// Blocks until this moment of CUPTI's time.
pub(crate) fn wait_until(end_ns: u64) {
    loop {
        let left = end_ns.saturating_sub(fake().now_ns());
        if left == 0 {
            return;
        }
        sleep(Duration::from_nanos(left));
    }
}

/// Waits for a stream, within the call of this correlation id.
pub(crate) fn synchronize(stream: u64, correlation: u32) -> Outcome {
    let stream = machine().stream(stream)?;
    if stream.capture.is_some() {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    let since = fake().now_ns();
    wait_until(fake().stream_end_ns(stream.id));
    fake().waited(&stream.place(Work::synchronize()), correlation, since);
    Ok(())
}

/// Waits for all streams of the current context.
pub(crate) fn synchronize_context(correlation: u32) -> Outcome {
    let context = context()?;
    let since = fake().now_ns();
    let streams = machine().streams_of(context);
    let end = streams.iter().map(|stream| fake().stream_end_ns(stream.id)).max();
    wait_until(end.unwrap_or_default());
    fake().waited(&Work::synchronize_context().in_context(context), correlation, since);
    Ok(())
}

/// `CUDA_ERROR_NOT_READY` while this moment has not come.
pub(crate) fn query(end_ns: u64) -> Outcome {
    if fake().now_ns() < end_ns { Err(CUresult::CUDA_ERROR_NOT_READY) } else { Ok(()) }
}

/// Records an event in a stream.
pub(crate) fn record(event: u64, stream: u64) -> Outcome {
    let mut machine = machine();
    machine.event(event)?;
    let stream = machine.stream(stream)?;
    let at_ns = fake().stream_end_ns(stream.id).max(fake().now_ns());
    let (at_ns, capture) = match stream.capture {
        Some(graph) => (None, Some(graph)),
        None => (Some(at_ns), None),
    };
    machine.events.insert(event, Event { at_ns, capture, context: stream.context });
    Ok(())
}

/// Has a stream wait for an event. A wait for an event of a capture takes the stream into it.
pub(crate) fn wait_event(stream: u64, event: u64, correlation: u32) -> Outcome {
    let (mut stream, event) = {
        let mut machine = machine();
        (machine.stream(stream)?, machine.event(event)?)
    };
    if event.capture.is_some() {
        if stream.capture.is_none() {
            stream.capture = event.capture;
            machine().update_stream(stream);
        }
        return Ok(());
    }
    let since = fake().now_ns();
    fake().delay_stream(stream.id, event.at_ns.unwrap_or_default());
    fake().waited(&stream.place(Work::wait_event()), correlation, since);
    Ok(())
}

/// Waits for an event.
pub(crate) fn synchronize_event(event: u64, correlation: u32) -> Outcome {
    // A thread without a context may wait for an event: frameworks wait on the program's own.
    let event = machine().event(event)?;
    let since = fake().now_ns();
    wait_until(event.at_ns.unwrap_or_default());
    let wait = Work::synchronize_event().in_context(event.context).on_stream(u32::MAX);
    fake().waited(&wait, correlation, since);
    Ok(())
}

/// Milliseconds from one event to another.
pub(crate) fn elapsed_ms(from: u64, to: u64) -> Outcome<f32> {
    let machine = machine();
    let at = |event: Event| event.at_ns.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE);
    let (from, to) = (at(machine.event(from)?)?, at(machine.event(to)?)?);
    query(from.max(to))?;
    Ok((to as f64 - from as f64) as f32 / 1e6)
}

/// Begins to capture a stream.
pub(crate) fn begin_capture(stream: u64) -> Outcome {
    let mut stream = machine().stream(stream)?;
    if stream.is_default || stream.capture.is_some() {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    stream.capture = Some(graphs::create());
    stream.is_origin = true;
    machine().update_stream(stream);
    Ok(())
}

/// Ends the capture that began on a stream; its graph.
pub(crate) fn end_capture(stream: u64) -> Outcome<u32> {
    let mut machine = machine();
    let stream = machine.stream(stream)?;
    let graph = stream.capture.filter(|_| stream.is_origin);
    let graph = graph.ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
    for stream in machine.capturing(graph) {
        machine.update_stream(Stream { capture: None, is_origin: false, ..stream });
    }
    Ok(graph)
}
