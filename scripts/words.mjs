// Texts of the interface and their translations. `node scripts/words.mjs`: bring every language file of megalens/locale in line with the
// texts of src, with empty places to fill; `--check`: say what is wrong with them, and change nothing.

import { existsSync, readdirSync, readFileSync, writeFileSync } from 'fs';
import { join, relative } from 'path';
import { pathToFileURL } from 'url';
import ts from 'typescript';

const LOCALES = 'megalens/locale';
/** Names by which the translator is called; those with two texts take a number, which chooses one. */
const TRANSLATES = new Set(['t', '_t', '__', 'gettext', '_n', 'ngettext']);
const PLURAL = new Set(['_n', 'ngettext']);
/** Members of tables that a person reads. Where they are shown they are translated. */
const SHOWN = new Set(['title', 'summary', 'label', 'absent', 'meaning']);
/**
 * Rooms whose sentences stay English: what went wrong below the page. Schedules have
 * the names that papers gave them.
 */
const ENGLISH = /^src\/(engine|protocol|client|store|page|instruments\/pipeline\/plan\/make-plan)\b/;
/** Where else a text stands that a person reads. */
const PLACES = new Set([
  ...['text', 'sentence', 'caption', 'hint', 'heading', 'help', 'placeholder', 'followLabel', 'keys'],
  ...['aria-label', 'aria-roledescription', 'aria-valuetext', 'textContent', 'message']
]);

/** Every source file of the page, without tests. */
function* sources(folder) {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) {
      if (entry.name !== '__tests__') {
        yield* sources(path);
      }
    } else if (/\.tsx?$/.test(path) && !path.endsWith('.d.ts')) {
      yield path;
    }
  }
}

/** The texts that an expression can be; null where that is not known from the expression alone. */
function textsOf(node) {
  if (ts.isStringLiteralLike(node)) {
    return [node.text];
  }
  if (ts.isParenthesizedExpression(node)) {
    return textsOf(node.expression);
  }
  if (ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.QuestionQuestionToken) {
    return isShown(node.left) ? textsOf(node.right) : null;
  }
  if (ts.isConditionalExpression(node)) {
    const [one, other] = [textsOf(node.whenTrue), textsOf(node.whenFalse)];
    return one && other && [...one, ...other];
  }
  return null;
}

/** `(text, …) => translator(text, …)`: it hands on what its callers give, who are looked at themselves. */
function handsOn(call, first) {
  let around = call.parent;
  while (around && !ts.isArrowFunction(around)) {
    around = around.parent;
  }
  return (
    ts.isIdentifier(first) && around?.parameters.some(each => each.name.getText() === first.text) === true
  );
}

/** `title`, `info.title`, `absent ?? 'This …'`: what stands in a table, whose texts `translatedLater` marks. */
const isShown = node =>
  ts.isBinaryExpression(node)
    ? isShown(node.left)
    : SHOWN.has(
        ts.isIdentifier(node) ? node.text : ts.isPropertyAccessExpression(node) ? node.name.text : ''
      );

const nameOf = ({ expression }) =>
  ts.isIdentifier(expression)
    ? expression.text
    : ts.isPropertyAccessExpression(expression)
      ? expression.name.text
      : '';

/** Words of a sentence or a label; a path of SVG is none. */
const isWords = text => /\p{L}{2}.*\s|^\p{Lu}\p{Ll}{2,}/u.test(text) && !/^M\d/.test(text);

/** Whether a text that a person reads stands in its place untranslated: `title: 'Layers'`, `aria-label="Runs"`. */
function isBare(node) {
  const isPlace = name => SHOWN.has(name) || PLACES.has(name);
  if (ts.isJsxText(node)) {
    return /\p{L}{2}/u.test(node.text);
  }
  const [name, value] = ts.isPropertyAssignment(node)
    ? [node.name.getText().replaceAll("'", ''), node.initializer]
    : ts.isJsxAttribute(node)
      ? [node.name.getText(), node.initializer]
      : ts.isBinaryExpression(node) && ts.isPropertyAccessExpression(node.left)
        ? [node.left.name.text, node.right]
        : ['', undefined];
  return isPlace(name) && value !== undefined && literals(value).some(isWords);
}

/** The literal parts of what a value can be. */
function literals(node) {
  if (ts.isStringLiteralLike(node)) {
    return [node.text];
  }
  if (ts.isTemplateExpression(node)) {
    return [node.head.text + node.templateSpans.map(({ literal }) => ` ${literal.text}`).join('')];
  }
  if (ts.isConditionalExpression(node)) {
    return [...literals(node.whenTrue), ...literals(node.whenFalse)];
  }
  return [];
}

/** Texts of a folder by key, with where each stands, and the calls whose text cannot be known. */
export function collect(root) {
  const texts = new Map();
  const unknown = [];
  const bare = [];
  for (const path of sources(join(root, 'src'))) {
    const source = ts.createSourceFile(path, readFileSync(path, 'utf8'), ts.ScriptTarget.Latest, true);
    const where = node =>
      `${relative(root, path)}:${source.getLineAndCharacterOfPosition(node.getStart()).line + 1}`;
    const take = (text, node, plural) => {
      const known = texts.get(text) ?? { plural, where: where(node) };
      if (known.plural !== plural) {
        unknown.push(`${where(node)}: “${text}” has another plural at ${known.where}`);
      }
      texts.set(text, known);
    };
    const isTable = path.endsWith('view-table.generated.ts');
    const visit = node => {
      if (ts.isCallExpression(node)) {
        const name = nameOf(node);
        const [first, second] = node.arguments;
        if (name === 'translatedLater') {
          const inner = each => {
            if (ts.isStringLiteralLike(each)) {
              take(each.text, each);
            }
            ts.forEachChild(each, inner);
          };
          inner(first);
        } else if (TRANSLATES.has(name) && first) {
          const [one, other] = [textsOf(first), PLURAL.has(name) ? textsOf(second) : [undefined]];
          if (one && other) {
            one.forEach(text => take(text, node, other[0]));
          } else if (!handsOn(node, first) && !isShown(first)) {
            unknown.push(`${where(node)}: ${node.getText().replace(/\s+/g, ' ').slice(0, 100)}`);
          }
        }
      } else if (isTable && ts.isPropertyAssignment(node) && SHOWN.has(node.name.getText())) {
        textsOf(node.initializer)?.forEach(text => text !== '' && take(text, node));
      } else if (!ENGLISH.test(relative(root, path)) && isBare(node)) {
        bare.push(`${where(node)}: ${node.getText().replace(/\s+/g, ' ').slice(0, 120)}`);
      }
      ts.forEachChild(node, visit);
    };
    visit(source);
  }
  return { texts, unknown, bare };
}

const placesOf = text => [...new Set(text.match(/%\d/g) ?? [])].sort().join(' ');

/** What is wrong with a language file, a line each. */
export function faultsOf(texts, { '': head, ...words }) {
  const faults = [];
  if (!head?.language || !/^nplurals=\d+; plural=.+;$/.test(head.plural_forms ?? '')) {
    faults.push('its head lacks language or plural_forms');
  }
  // JupyterLab takes a single form for no plural at all, also where a language has but one.
  const forms = Math.max(2, Number(/nplurals=(\d+)/.exec(head?.plural_forms ?? '')?.[1] ?? 2));
  for (const [text, { plural, where }] of texts) {
    const translated = words[text] ?? [];
    const wanted = plural === undefined ? 1 : forms;
    if (translated.length !== wanted || translated.some(each => each === '')) {
      faults.push(`“${text}” (${where}): must have ${wanted} texts, got ${JSON.stringify(translated)}`);
      continue;
    }
    const places = placesOf(text + (plural ?? ''));
    for (const each of translated) {
      // A form of a plural may leave the number out that stands for itself.
      const has = placesOf(each);
      if (has !== places && !(plural !== undefined && has === places.replace(/%1 ?/, ''))) {
        faults.push(`“${text}” (${where}): must have ${places || 'no %1'}, got “${each}”`);
      }
    }
  }
  for (const text of Object.keys(words)) {
    if (!texts.has(text)) {
      faults.push(`“${text}” is no text of the interface any more`);
    }
  }
  return faults;
}

/** The language files by language. */
export function languages(root) {
  const folder = join(root, LOCALES);
  return readdirSync(folder, { withFileTypes: true })
    .filter(entry => entry.isDirectory() && existsSync(join(folder, entry.name, 'LC_MESSAGES')))
    .map(entry => [entry.name, join(folder, entry.name, 'LC_MESSAGES', 'megalens.json')]);
}

/** Add places for what is new and drop what is gone, in the order of the alphabet. */
function renew(texts, path) {
  const { '': head, ...words } = JSON.parse(readFileSync(path, 'utf8'));
  const kept = [...texts].map(([text, { plural }]) => [
    text,
    words[text] ?? (plural === undefined ? [''] : ['', ''])
  ]);
  const sorted = kept.sort(([a], [b]) => (a < b ? -1 : 1));
  writeFileSync(path, `${JSON.stringify({ '': head, ...Object.fromEntries(sorted) }, null, 1)}\n`);
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? '').href) {
  const { texts, unknown, bare } = collect('.');
  const isCheck = process.argv.includes('--check');
  const faults = [
    ...unknown.map(each => `The text of this call is not known: ${each}`),
    ...bare.map(each => `This text does not go through the translator: ${each}`)
  ];
  for (const [language, path] of languages('.')) {
    if (!isCheck) {
      renew(texts, path);
    }
    const found = faultsOf(texts, JSON.parse(readFileSync(path, 'utf8')));
    faults.push(...found.map(each => `${language}: ${each}`));
  }
  faults.forEach(each => console.log(each));
  console.log(`${texts.size} texts, ${faults.length} faults`);
  process.exitCode = faults.length > 0 ? 1 : 0;
}
