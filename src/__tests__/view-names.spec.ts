/** @jest-environment ./jest.environment.node.js */
import { readdirSync, readFileSync, statSync } from 'fs';
import { join, relative } from 'path';
import { STREAMS } from '../protocol/streams';
import { viewInfos } from '../protocol/view-info';

const NAMES = viewInfos().map(({ name }) => name);
const METHODS = viewInfos().flatMap(({ method }) => method ?? []);
const { exceptions } = JSON.parse(readFileSync('view-names.json', 'utf-8')) as {
  exceptions: { path: string; names: string[] }[];
};

function filesUnder(folder: string): string[] {
  return readdirSync(folder).flatMap(name => {
    const path = join(folder, name);
    if (statSync(path).isDirectory()) {
      return name === '__tests__' ? [] : filesUnder(path);
    }
    return /\.tsx?$/.test(name) && !name.includes('.generated.') ? [path] : [];
  });
}

/** Where a view may be named: in its own folder, and in all of its instrument. */
const HOMES = new Map<string, string[]>();
for (const path of filesUnder('src')) {
  const [, home = '', name = ''] = /^(src\/views\/(\w+)\/)/.exec(path) ?? [];
  const [, slice = '', view = ''] = /^(src\/instruments\/\w+\/)(?:.*\/)?(\w+)-view\.ts$/.exec(path) ?? [];
  HOMES.set(name || view, [...(HOMES.get(name || view) ?? []), home || slice].filter(Boolean));
}

/**
 * Views that a line names: as a text, or as the key of an object. A name that a stream, or what is logged, has as well (scalars, statistics)
 * counts only on a line that speaks of views and not of streams.
 */
function named(line: string): string[] {
  const found = [...line.matchAll(/(['"`])(\w+)\1|^\s*(\w+): /g)].map(match => match[2] ?? match[3] ?? '');
  const ofViews = /view|^\s*\w+: .*import\(/i.test(line) && !/stream/i.test(line);
  return [...new Set([...NAMES, ...METHODS])].filter(
    name => found.includes(name) && (!(name in STREAMS || name === 'statistics') || ofViews)
  );
}

it.each([
  ["  if (view === 'statistics') {", ['statistics']],
  ["  group: 'statistics',", []],
  ["  return this.openView('scalars');", ['scalars']],
  ['  heatmap: () => 1,', ['heatmap']],
  ["  scalars: () => import('./scalars'),", ['scalars']],
  ["  table('scalars', bytes)", []],
  ['// the history of a run', []]
])('%s names %j', (line, names) => {
  expect(named(line)).toEqual(names);
});

it('no room but a view’s own names views: the table of views is read instead', () => {
  const breaches = filesUnder('src').flatMap(path => {
    const own = NAMES.filter(name => HOMES.get(name)?.some(home => path.startsWith(home)));
    const allowed = exceptions.filter(each => path.startsWith(each.path)).flatMap(({ names }) => names);
    return readFileSync(path, 'utf-8')
      .split('\n')
      .flatMap((line, at) =>
        named(line)
          .filter(name => !own.includes(name) && !allowed.includes(name))
          .map(name => `${relative('.', path)}:${at + 1} names ${name}: ${line.trim()}`)
      );
  });
  expect(breaches).toEqual([]);
});

it('a view’s command says its name', () => {
  for (const { name, method, command } of viewInfos()) {
    expect([`megalens:open-${name}`, `megalens:open-${method}`]).toContain(command);
  }
});
