// Opens a profile in speedscope's page and saves what it imported: `browse ask_speedscope.mjs SPEEDSCOPE PROFILE FOLDER`.
//
// Prints a line of JSON for every stack of every profile: the profile's name and unit, the frames from the outermost, and
// the weight.
import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { pathToFileURL } from 'node:url';

const { chromium } = createRequire(`${process.env.MODULES}/`)('playwright-core');
const [speedscope, profile, folder] = process.argv.slice(2);

// As speedscope's own command line does it.
const script = path.join(folder, 'profile.js');
const [name, bytes] = [path.basename(profile), readFileSync(profile).toString('base64')];
writeFileSync(script, `speedscope.loadFileFromBase64(${JSON.stringify(name)}, ${JSON.stringify(bytes)})`);

const args = ['--no-sandbox', '--enable-unsafe-swiftshader', '--allow-file-access-from-files'];
const browser = await chromium.launch({ executablePath: process.env.BROWSER, args });
try {
    const page = await browser.newPage();
    const errors = [];
    page.on('pageerror', (error) => errors.push(String(error)));
    await page.goto(`${pathToFileURL(path.join(speedscope, 'index.html'))}#localProfilePath=${script}`);
    // The canvases of the flame graph are there once the profile is.
    await page.waitForFunction(() => document.querySelectorAll('canvas').length > 0, null, { timeout: 300_000 });
    const [download] = await Promise.all([
        page.waitForEvent('download', { timeout: 300_000 }),
        page.keyboard.press('Control+s'),
    ]);
    const file = path.join(folder, 'saved.json');
    await download.saveAs(file);
    if (errors.length > 0) {
        throw new Error(errors.join('\n'));
    }
    const { shared, profiles } = JSON.parse(readFileSync(file, 'utf8'));
    // A frame opens and closes at a weight; what goes by in between is that of the open frames.
    for (const { name, unit, type, events } of profiles) {
        if (type !== 'evented') {
            throw new Error(`a profile of type ${type}`);
        }
        const open = [];
        let last = 0;
        for (const event of events) {
            if (event.at > last) {
                console.log(JSON.stringify({ name, unit, frames: open, weight: event.at - last }));
                last = event.at;
            }
            if (event.type === 'O') {
                open.push(shared.frames[event.frame].name);
            } else if (open.pop() !== shared.frames[event.frame].name) {
                throw new Error(`${shared.frames[event.frame].name} closes, and is not the innermost`);
            }
        }
    }
} finally {
    await browser.close();
}
