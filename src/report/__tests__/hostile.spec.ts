/** @jest-environment ./jest.environment.node.js */

import { zlibSync } from 'fflate';
import { JSDOM } from 'jsdom';
import { SaxesParser } from 'saxes';
import { visible } from '../../charts/format';
import { boundedText } from '../../protocol/texts';
import type { ViewOptions } from '../../protocol/views.generated';
import { buildReport, type IReportJob } from '../report';
import { detailOf, fakeReader, rowOf } from './fake-reader';

const PIECES = [
  '\u0000', '\u001b[31m', '\u007f', '\u009b', '\ud800', '\udfff', '\ufffe', '\uffff', '\u2028', '\u202e', '</script>', '<!--', ']]>', '<img src=x onerror=alert(1)>',
  '"', "'", "'''", '\\', '\n', '`', '${1}', '$x$', '\\(x\\)', '[a](http://x.y)', '![a](b)', 'http://x.y/z', 'www.x.y', '|', '&amp;', '&#60;', '# ', '"); import os; os.system("x") #', 'é𝒳'
]; // prettier-ignore

/** Texts of those pieces, always the same ones. */
function hostile(seed: number): string {
  const at = (turn: number): number => Math.floor(Math.abs(Math.sin(seed * 31 + turn * 17) * 1e4));
  return `N${Array.from({ length: 3 }, (_, turn) => PIECES[at(turn) % PIECES.length]).join('o')}E`;
}

function made(format: 'html' | 'ipynb', name: string): Promise<string> {
  // What travels and what a file holds are whole texts.
  const flag = boundedText(name, 100);
  const { hello, ...rest } = detailOf();
  const detail: ReturnType<typeof detailOf> = {
    ...rest,
    hello: {
      ...hello,
      run: { ...hello.run, name },
      model: { ...(hello.model ?? { layers: 1 }), name },
      flags: hello.flags.map(each => ({ ...each, name: flag, title: flag }))
    }
  };
  const rows = [1, 2].map(step =>
    rowOf({ step, flag, shape: [1, 2, 4], values: Float32Array.of(1, 2, 3, 4, 5, 6, 7, 8) })
  );
  const views: ViewOptions[] = [
    // What is half a character is no option of a view.
    { view: 'scalars', names: [boundedText(name, 500)] },
    { view: 'heatmap', flag, layers: '1', step: 1 }
  ];
  const request: IReportJob = {
    run: name,
    views,
    title: name,
    format,
    folder: name,
    made: 0,
    version: name,
    traced: [],
    language: 'en',
    words: {},
    parts: { script: '0', digests: [], style: '' }
  };
  const scalars = [1, 2].map(step => [step, boundedText(name, 500), step] as const);
  const reader = fakeReader(rows, scalars, undefined, [
    JSON.stringify({ patch: { flags: { [flag]: { layers: flag, compressor: { name: flag } } } } }),
    flag
  ]);
  return buildReport(request, {
    open: () => Promise.resolve({ detail, reader }),
    progress: () => undefined,
    deflate: bytes => zlibSync(bytes, { level: 1 })
  });
}
/** As a person reads a text: white space is one space. */
const read = (text: string | null | undefined): string => (text ?? '').split(/\s+/).join(' ').trim();

interface INotebook {
  cells: { cell_type: string; source: string; outputs?: { data: Record<string, string> }[] }[];
}

it('writes pages that hold only their own elements and notebooks whose pictures are XML, whatever a run is called', async () => {
  for (let seed = 0; seed < 3; seed += 1) {
    const name = hostile(seed);
    const html = await made('html', name);
    expect(html).not.toMatch(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\ufffe\uffff]|\p{Cs}/u);
    const { document } = new JSDOM(html).window;
    expect(document.querySelectorAll('script')).toHaveLength(2);
    expect(document.querySelectorAll('img, iframe, a, [onerror]')).toHaveLength(0);
    expect(read(document.querySelector('h1')?.textContent)).toBe(read(visible(name)));
    for (const said of [
      `1 × ${visible(name)}`,
      `${visible(name)} as ${visible(name)}(), layers ${visible(name)}`
    ]) {
      expect(read(document.body.textContent)).toContain(read(said));
    }
    expect(() => JSON.parse(document.getElementById('megalens-data')?.textContent ?? '')).not.toThrow();

    const notebook = JSON.parse(await made('ipynb', name)) as INotebook;
    // Code may name them by their escapes.
    expect(JSON.stringify(notebook)).not.toMatch(/(?<!\\)\\u(d[89a-f]|001b|0000)/);
    const drawn = notebook.cells.flatMap(({ outputs = [] }) =>
      outputs.map(({ data }) => data['image/svg+xml'] ?? '')
    );
    expect(drawn.filter(Boolean).length).toBeGreaterThan(0);
    for (const svg of drawn.filter(Boolean)) {
      expect(() => new SaxesParser({ xmlns: true }).write(svg).close()).not.toThrow();
    }
    for (const cell of notebook.cells.filter(({ cell_type }) => cell_type === 'markdown')) {
      // Nothing but what this package wrote is markup: all else is escaped.
      expect(cell.source).not.toMatch(/(?<!\\)[<`$[]|(?<!\\)\]\(|:\/\/|\bwww\./);
    }
  }
});
