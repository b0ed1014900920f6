// Perfetto's trace processor, as it runs in its web page, under node: `node trace_processor.js FOLDER REQUESTS REPLIES`.
//
// FOLDER holds engine_bundle.js with its wasm, REQUESTS the bytes of a TraceProcessorRpcStream, and REPLIES is written.
'use strict';
const fs = require('fs');
const path = require('path');
const vm = require('vm');

const [folder, requests, replies] = process.argv.slice(2);
const fail = (error) => {
    console.error(String((error && error.stack) || error).slice(0, 2000));
    process.exit(1);
};
process.on('uncaughtException', fail);
process.on('unhandledRejection', fail);

const read = (url) => {
    const bytes = fs.readFileSync(path.join(folder, path.basename(String(url))));
    return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
};

// What the bundle expects of a worker.
class XMLHttpRequest {
    open(_method, url) {
        this.url = url;
    }
    send() {
        this.response = read(this.url);
        this.status = 200;
    }
}
const worker = {
    console, crypto, performance, setTimeout, clearTimeout, TextDecoder, TextEncoder, URL, XMLHttpRequest,
    WorkerGlobalScope: class {},
    addEventListener() {},
    importScripts() {},
    location: { href: 'http://localhost/engine_bundle.js' },
    fetch: async (url) => ({
        ok: true, status: 200, url, headers: { get: () => 'application/wasm' }, arrayBuffer: async () => read(url),
    }),
};
worker.self = worker;
worker.globalThis = worker;
vm.createContext(worker);
vm.runInContext(fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8'), worker);

const said = [];
const port = { onmessage: null, postMessage: (bytes) => said.push(Buffer.from(bytes)) };
worker.self.onmessage({ data: port });

(async () => {
    // The wasm is loaded by promises that nobody hands out: a ready port asks for messages, and answers once it can.
    for (let i = 0; i < 100; i++) {
        await new Promise((resolve) => setTimeout(resolve, 25));
    }
    // The bytes have to be of the bundle's own world.
    const bytes = fs.readFileSync(requests);
    const copy = vm.runInContext('(length) => new Uint8Array(length)', worker)(bytes.length);
    copy.set(bytes);
    port.onmessage({ data: copy });
    fs.writeFileSync(replies, Buffer.concat(said));
    process.exit(0);
})().catch(fail);
