/** @jest-environment ./jest.environment.node.js */
import { RegExpParser, type AST } from '@eslint-community/regexpp';
import { readdirSync, readFileSync } from 'fs';
import { join } from 'path';
import ts from 'typescript';
import { PATHS } from '../views/shared/clean-paths';

/** Characters that are tried for what stands for several. */
const LETTERS = ['a', '0', ' ', '.', ...'\n\t_-,=:/\\\'"()[]<>#%&…K'];
const LENGTH = 4000;
/** Milliseconds; one that goes back takes several times as long. */
const MOST = 5;

type Part = AST.Element | AST.Alternative | AST.Pattern;

/** Texts of one round of a part of an expression. */
function samples(part: Part): string[] {
  switch (part.type) {
    case 'Character':
      return [String.fromCodePoint(part.value)];
    case 'CharacterSet':
    case 'CharacterClass':
    case 'ExpressionCharacterClass': {
      // Properties of characters, and those beyond 16 bits, are read with that flag only.
      const taken = new RegExp(`^${part.raw}$`, /\\[pPu]\{/.test(part.raw) ? 'su' : 's');
      return LETTERS.filter(letter => taken.test(letter));
    }
    case 'Quantifier':
      return part.min === 0
        ? ['', ...samples(part.element)]
        : samples(part.element).map(text => text.repeat(part.min));
    case 'Alternative':
      return [
        part.elements.map(each => samples(each)[0] ?? '').join(''),
        ...(part.elements.length === 1 ? samples(part.elements[0] as Part) : [])
      ];
    case 'Group':
    case 'CapturingGroup':
    case 'Pattern':
      return part.alternatives.flatMap(samples);
    default:
      return [''];
  }
}

/** What may be repeated without end, with a text that leads there. */
function* repeats(part: Part | AST.Element, before: string): Generator<[string, AST.Quantifier]> {
  if (part.type === 'Quantifier') {
    if (part.max > 20) {
      yield [before, part];
    }
    yield* repeats(part.element, before);
  } else if (part.type === 'Alternative') {
    for (const each of part.elements) {
      yield* repeats(each, before);
      before += samples(each).find(text => text !== '') ?? '';
    }
  } else if ('alternatives' in part) {
    for (const each of part.alternatives) {
      yield* repeats(each, before);
    }
  }
}

/** Texts for which one that goes back would take long: it is led to a repeat, repeats it, and then nothing fits. */
function* attacks(pattern: AST.Pattern): Generator<string> {
  for (const [before, { element }] of repeats(pattern, '')) {
    const rounds = [...new Set(samples(element).filter(Boolean))].slice(0, 3);
    for (const round of [...rounds, rounds.slice(0, 2).join('')]) {
      const long = round.repeat(LENGTH / Math.max(1, round.length));
      for (const lead of new Set([before, `${before}a`])) {
        yield `${lead}${long}a\n\u0001`;
      }
    }
  }
}

/** Every regular expression that stands in the code, with where. */
function expressionsOf(file: string): [string, string, string][] {
  const found: [string, string, string][] = [];
  const tree = ts.createSourceFile(file, readFileSync(file, 'utf8'), ts.ScriptTarget.Latest);
  const visit = (node: ts.Node): void => {
    if (ts.isRegularExpressionLiteral(node)) {
      const end = node.text.lastIndexOf('/');
      found.push([file, node.text.slice(1, end), node.text.slice(end + 1)]);
    }
    ts.forEachChild(node, visit);
  };
  visit(tree);
  return found;
}

function took(expression: RegExp, text: string): number {
  const start = performance.now();
  text.replace(expression, '');
  return performance.now() - start;
}

/** The text for which an expression takes longest, and how long. */
function slowest(source: string, flags: string): { took: number; text: string } {
  const expression = new RegExp(source, flags);
  let worst = { took: 0, text: '' };
  const read = new RegExpParser().parsePattern(source, 0, source.length, flags.includes('u'));
  for (const text of attacks(read)) {
    // The least of six where it is much: the machine may be busy.
    const first = took(expression, text);
    const least =
      first < MOST ? first : Math.min(first, ...Array.from({ length: 5 }, () => took(expression, text)));
    if (least > worst.took) {
      worst = { took: least, text: `${text.slice(0, 20)}…${text.slice(-3)}` };
    }
    if (worst.took > MOST) {
      break;
    }
  }
  return worst;
}

const files = readdirSync('src', { recursive: true, encoding: 'utf8' }).filter(
  file => /\.tsx?$/.test(file) && !file.includes('__tests__')
);

it('notices expressions that go back', () => {
  for (const source of ['^a=(.*?)\\s*$', '\\d+;']) {
    expect(slowest(source, 'gs').took).toBeGreaterThan(MOST);
  }
});

it('has no expression in the code that takes more than time linear in a text', () => {
  const found = [
    ...files.flatMap(file => expressionsOf(join('src', file))),
    ['views/shared/clean-paths.ts', PATHS.source, PATHS.flags] as const
  ];
  expect(found.length).toBeGreaterThan(50);
  expect(
    found.flatMap(([file, source, flags]) => {
      const worst = slowest(source, flags);
      return worst.took < MOST ? [] : [{ file, source, ...worst }];
    })
  ).toEqual([]);
});
