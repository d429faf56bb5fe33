/** @jest-environment ./jest.environment.node.js */
import { existsSync, readdirSync, readFileSync, statSync } from 'fs';
import { dirname, join, relative, resolve } from 'path';

/** The allow-list that anyone can read. */
const RULES = JSON.parse(readFileSync('rooms.json', 'utf-8')).typescript as Record<
  string,
  { rooms: string[]; packages: string[] }
>;
const SOURCE = resolve('src');

function filesUnder(folder: string): string[] {
  return readdirSync(folder).flatMap(name => {
    const path = join(folder, name);
    if (statSync(path).isDirectory()) {
      return name === '__tests__' ? [] : filesUnder(path);
    }
    return /\.tsx?$/.test(name) ? [path] : [];
  });
}

function importsOf(path: string): string[] {
  const text = readFileSync(path, 'utf-8');
  const pattern =
    /(?:^|\n)\s*(?:import|export)\s[^'"`;]*?from\s*['"]([^'"]+)['"]|import\(\s*['"]([^'"]+)['"]\s*\)|(?:^|\n)\s*import\s*['"]([^'"]+)['"]|new URL\(\s*['"]([^'"]+)['"]/g;
  return [...text.matchAll(pattern)].map(match => match[1] ?? match[2] ?? match[3] ?? match[4] ?? '');
}

/** The files of this package that a file imports. */
function localImports(path: string): string[] {
  return importsOf(path)
    .filter(name => name.startsWith('.'))
    .flatMap(name => {
      const target = resolve(dirname(path), name).replace(/\.js$/, '');
      return [`${target}.ts`, `${target}.tsx`, join(target, 'index.ts'), target].find(isFile) ?? [];
    });
}

const isFile = (path: string): boolean => existsSync(path) && statSync(path).isFile();

/** The room of a path below src: a slice below `instruments` is one. */
const roomOf = (path: string): string => /^(instruments\/)?[^/]+/.exec(relative(SOURCE, path))?.[0] ?? '';

/** Where pages and the engine begin: they alone know which instruments there are. */
const ROOTS = [
  'index.ts',
  'engine/index.ts',
  'report/runtime.ts',
  'widgets/module.ts',
  'instruments/slices.generated.ts'
];

function allowed(room: string, path: string, name: string): boolean {
  const rule = RULES[room]!;
  if (name.startsWith('.')) {
    const file = relative(SOURCE, resolve(dirname(path), name));
    const target = roomOf(join(SOURCE, file));
    return (
      target === room ||
      // A whole room, or a folder or file of one.
      rule.rooms.some(each => file === each || file.startsWith(`${each}/`)) ||
      file === 'version' ||
      // Tokens are shared names without behaviour: plugins and panel meet there.
      (file === 'tokens' && ['plugins', 'panel'].includes(room)) ||
      (file === 'slice' && room.startsWith('instruments/'))
    );
  }
  return rule.packages.some(p =>
    p.endsWith('/*') ? name.startsWith(p.slice(0, -1)) : name === p || name.startsWith(`${p}/`)
  );
}

describe('import rules', () => {
  // An instrument may be left out.
  const there = Object.keys(RULES).filter(
    room => !room.startsWith('instruments/') || existsSync(join(SOURCE, room))
  );

  it.each(there)('%s imports only from its left and only its packages', room => {
    const files = filesUnder(join(SOURCE, room)).filter(path => !ROOTS.includes(relative(SOURCE, path)));
    expect(files.length).toBeGreaterThan(0);
    const breaches = files.flatMap(path =>
      importsOf(path)
        .filter(name => !allowed(room, path, name))
        .map(name => `${relative(SOURCE, path)} imports ${name}`)
    );
    expect(breaches).toEqual([]);
  });

  it('an instrument imports the core and no other instrument, and the core no instrument', () => {
    for (const [room, { rooms }] of Object.entries(RULES)) {
      expect([room, rooms.filter(each => each.startsWith('instruments'))]).toEqual([room, []]);
    }
  });

  it('has no circle: what two files need of each other stands in a third, types too', () => {
    const files = filesUnder(SOURCE);
    const targets = new Map(files.map(path => [path, localImports(path)]));
    const [isDone, trail] = [new Set<string>(), [] as string[]];
    const circles: string[] = [];
    const visit = (path: string): void => {
      const from = trail.indexOf(path);
      if (from >= 0) {
        circles.push([...trail.slice(from), path].map(each => relative(SOURCE, each)).join(' → '));
      } else if (!isDone.has(path)) {
        trail.push(path);
        targets.get(path)?.forEach(visit);
        trail.pop();
        isDone.add(path);
      }
    };
    files.forEach(visit);
    expect([...targets.values()].flat().length).toBeGreaterThan(files.length);
    expect(circles).toEqual([]);
  });

  it('exports no two classes or interfaces of one name', () => {
    const places = new Map<string, string[]>();
    for (const path of filesUnder(SOURCE)) {
      for (const [, name] of readFileSync(path, 'utf-8').matchAll(
        /^export (?:abstract )?(?:class|interface) (\w+)/gm
      )) {
        places.set(name!, [...(places.get(name!) ?? []), relative(SOURCE, path)]);
      }
    }
    expect([...places].filter(([, files]) => files.length > 1)).toEqual([]);
  });

  it('knows every room', () => {
    const rooms = filesUnder(SOURCE)
      .map(roomOf)
      .filter(room => !room.endsWith('.ts'));
    expect([...new Set(rooms)].sort()).toEqual([...there].sort());
  });
});
