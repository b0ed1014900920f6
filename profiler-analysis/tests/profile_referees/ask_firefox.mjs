// Asks the Firefox Profiler's own code about a profile: `node ask_firefox.mjs PROFILER_CLI PROFILE FOLDER`.
//
// Prints a line of JSON for every thread: its names, its functions with their samples, and its markers with their fields.
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';

const [cli, profile, folder] = process.argv.slice(2);
// It takes every JSON file there for a session.
const sessions = `${folder}/s`;
const env = { ...process.env, PROFILER_CLI_SESSION_DIR: sessions, PROFILER_CLI_NO_SYMBOLICATE: '1' };
const session = ['--session', 'referee'];
const json = (...args) => JSON.parse(execFileSync(process.execPath, [cli, ...args, ...session, '--json'],
    { env, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'], maxBuffer: 1 << 28, timeout: 300_000 }));

// Its command `load` gives its server half a second to start, which a busy machine does not; there the server may also give
// up by itself. A question that comes before it answers removes its session.
const start = () => {
    rmSync(sessions, { recursive: true, force: true });
    mkdirSync(sessions);
    return spawn(process.execPath, [cli, '--daemon', profile, ...session], { env, stdio: 'ignore' });
};
const log = `${sessions}/referee.log`;
const isLoaded = () => existsSync(log) && readFileSync(log, 'utf8').includes('Profile loaded successfully');
let server = start();
async function loaded() {
    for (let attempt = 1; ; attempt++) {
        await setTimeout(1_000);
        const hasEnded = server.exitCode !== null || server.signalCode !== null;
        if (attempt === 120) {
            throw new Error(`the profile was not loaded: ${existsSync(log) ? readFileSync(log, 'utf8') : 'no log'}`);
        }
        if (isLoaded() && !hasEnded) {
            try {
                return json('thread', 'list');
            } catch (error) {
                console.error(error.message);
                server.kill();
            }
        }
        if (hasEnded) {
            server = start();
        }
    }
}
try {
    const { threads } = await loaded();
    for (const thread of threads) {
        const of = ['--thread', thread.threadHandle];
        const functions = json('thread', 'functions', ...of, '--include-idle', '--limit', '0').functions;
        const markers = json('thread', 'markers', ...of, '--list', '--limit', '0').flatMarkers ?? [];
        console.log(JSON.stringify({
            name: thread.name,
            process: thread.processName,
            functions: functions.map((f) => [f.name, f.selfSamples, f.totalSamples]),
            markers: markers.map((m) => ({
                kind: m.markerType,
                name: m.name,
                start: m.start,
                duration: m.duration ?? null,
                fields: Object.fromEntries((m.fields ?? []).map((field) => [field.key, field.value])),
            })),
        }));
    }
} finally {
    server.kill();
}
