/** @jest-environment node */
import { readdirSync, readFileSync, statSync } from 'fs';
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

/** The room of a path below src: a slice below `instruments` is one. */
const roomOf = (path: string): string => /^(instruments\/)?[^/]+/.exec(relative(SOURCE, path))?.[0] ?? '';

function allowed(room: string, path: string, name: string): boolean {
  const rule = RULES[room]!;
  if (name.startsWith('.')) {
    const target = roomOf(resolve(dirname(path), name));
    // Tokens are shared names without behaviour: plugins and panel meet there.
    return (
      target === room ||
      rule.rooms.includes(target) ||
      target === 'version' ||
      (target === 'tokens' && ['plugins', 'panel'].includes(room))
    );
  }
  return rule.packages.some(p =>
    p.endsWith('/*') ? name.startsWith(p.slice(0, -1)) : name === p || name.startsWith(`${p}/`)
  );
}

describe('import rules', () => {
  it.each(Object.keys(RULES))('%s imports only from its left and only its packages', room => {
    const files = filesUnder(join(SOURCE, room));
    expect(files.length).toBeGreaterThan(0);
    const breaches = files.flatMap(path =>
      importsOf(path)
        .filter(name => !allowed(room, path, name))
        .map(name => `${relative(SOURCE, path)} imports ${name}`)
    );
    expect(breaches).toEqual([]);
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
    expect([...new Set(rooms)].sort()).toEqual(Object.keys(RULES).sort());
  });
});
