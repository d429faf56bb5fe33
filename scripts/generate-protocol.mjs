// Writes what is made from the contract in protocol/. With --check it writes nothing and exits 1 when anything would change.
import { readFile, readdir, writeFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { compile } from 'json-schema-to-typescript';
import * as prettier from 'prettier';
import {
  loadersModule,
  notebookModule,
  optionsPage,
  slicesModule,
  tableModule,
  viewsOf,
  widgetsModule
} from './generate-views.mjs';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const banner = source =>
  `// Generated from ${source} by scripts/generate-protocol.mjs. Do not edit: run \`npm run generate\`.\n\n`;

/** Read one JSON file of the repository. */
const readJson = async path => JSON.parse(await readFile(join(root, path), 'utf8'));

/** Rebuild a JSON value, letting `change` replace each object after its children. */
function walk(value, change) {
  if (Array.isArray(value)) {
    return value.map(item => walk(item, change));
  }
  if (value !== null && typeof value === 'object') {
    return change(Object.fromEntries(Object.entries(value).map(([key, item]) => [key, walk(item, change)])));
  }
  return value;
}

/** Return a schema node as the compiler reads it best; the validator gets the node as it is. */
function forCompiler(node) {
  if (typeof node.$ref === 'string') {
    // With siblings the compiler copies the definition under another name.
    return { $ref: node.$ref };
  }
  if (node.type === 'object' && node.properties === undefined && node.additionalProperties === undefined) {
    return { ...node, tsType: 'Record<string, unknown>' };
  }
  if (node.minItems === node.maxItems) {
    return node;
  }
  // A bounded length would become a union of every tuple up to it.
  const { minItems: _min, maxItems: _max, ...rest } = node;
  return rest;
}

// Prose is for people: the validator does not need it in the bundle.
const withoutProse = node => {
  const copy = { ...node };
  for (const key of ['description', 'title']) {
    if (typeof copy[key] === 'string') {
      delete copy[key];
    }
  }
  return copy;
};

// What is said beside a schema (`x-…`) is for the generators alone.
const withoutAsides = node =>
  Object.fromEntries(Object.entries(node).filter(([key]) => !key.startsWith('x-')));

/** Return the types of a schema and the schema itself as a constant. */
async function schemaModule(path, constant, schemaTypes = './schema') {
  const schema = walk(await readJson(path), withoutAsides);
  const { $id: _id, $schema: _schema, ...copy } = walk(schema, forCompiler);
  const types = await compile(copy, schema.title, {
    additionalProperties: false,
    bannerComment: '',
    enableConstEnums: false,
    format: false,
    unreachableDefinitions: true
  });
  const literal = walk(schema, withoutProse);
  return (
    banner(path) +
    `import type { ISchema } from '${schemaTypes}';\n\n` +
    tidy(types) +
    `\n\n/** ${path}, as a validator takes it, without its prose. */\n` +
    `export const ${constant}: ISchema = ${JSON.stringify(literal)};\n`
  );
}

// The compiler's note on each definition only repeats where it found it.
function tidy(types) {
  return (
    types
      .replace(/\/\*\*[^/]*?\*\//gs, comment =>
        comment
          .replace(/^ \* This interface was referenced by .*\n( \* via the `definition` .*\n)?/gm, '')
          .replace(/( \*\n)+( \*\/)/, '$2')
      )
      .replace(/\/\*\*\s*\*\/\n?/g, '')
      // An object inside options must fit JSON types, which an interface does not: it has no index signature.
      .replace(/export interface (MomentFilter) (\{[^}]*\})/g, 'export type $1 = $2;')
      .replace(/(\n[}]|;)\n\/\*\*/g, '$1\n\n/**')
  );
}

/** Return the columns and the policy of every stream. */
async function streamsModule() {
  const path = 'protocol/streams.json';
  const { streams } = await readJson(path);
  const kinds = [
    ...new Set(Object.values(streams).flatMap(stream => stream.fields.map(field => field.type)))
  ];
  return (
    banner(path) +
    "import type { DeclaredPolicy } from './messages.generated';\n\n" +
    '/** Arrow type of a column. */\n' +
    `export type FieldType = ${kinds.map(kind => `'${kind}'`).join(' | ')};\n\n` +
    '/** Name of a stream that this version knows. */\n' +
    `export type StreamName = ${Object.keys(streams)
      .map(name => `'${name}'`)
      .join(' | ')};\n\n` +
    '/** One column of a stream. */\n' +
    'export interface IStreamField {\n  readonly name: string;\n  readonly type: FieldType;\n  readonly doc?: string;\n  readonly absent?: string;\n}\n\n' +
    '/** One stream: what a row is, its columns in order, and how every room treats it. */\n' +
    'export interface IStreamInfo {\n  readonly title: string;\n  readonly doc?: string;\n  readonly instrument?: string;\n  readonly policy: Readonly<DeclaredPolicy>;\n  readonly fields: readonly IStreamField[];\n}\n\n' +
    '/** Every stream by name. */\n' +
    `export const STREAMS: Readonly<Record<StreamName, IStreamInfo>> = ${JSON.stringify(streams)};\n`
  );
}

/** Return the chart templates by name, or null while there is none. */
async function chartsModule() {
  const folder = 'protocol/charts';
  const names = (await readdir(join(root, folder))).filter(name => name.endsWith('.vl.json')).sort();
  if (names.length === 0) {
    return null;
  }
  const templates = {};
  for (const name of names) {
    templates[name.slice(0, -'.vl.json'.length)] = await readJson(`${folder}/${name}`);
  }
  return (
    banner(`${folder}/*.vl.json`) +
    '/** Name of a chart template. */\n' +
    `export type TemplateName = ${Object.keys(templates)
      .map(name => `'${name}'`)
      .join(' | ')};\n\n` +
    '/** Vega-Lite templates by name. Not to be changed: copy before filling. */\n' +
    `export const TEMPLATES: Readonly<Record<TemplateName, Readonly<Record<string, unknown>>>> = ${JSON.stringify(templates)};\n`
  );
}

/** Return the colours by role. */
async function colorsModule() {
  const path = 'protocol/charts/colors.json';
  return (
    banner(path) +
    '/** Colours by role; protocol/charts/README.md says what each is for. */\n' +
    `export const COLORS = ${JSON.stringify(await readJson(path))} as const;\n`
  );
}

/** Return the names of the folders in a folder. */
async function foldersIn(path) {
  const entries = await readdir(join(root, path), { withFileTypes: true });
  return entries
    .filter(entry => entry.isDirectory())
    .map(({ name }) => name)
    .sort();
}

/** Say where two texts differ: the first line and how many lines were there and are now. */
function summary(before, after) {
  if (before === null) {
    return 'is missing';
  }
  const [old, fresh] = [before.split('\n'), after.split('\n')];
  const line = fresh.findIndex((text, index) => text !== old[index]);
  const at = line < 0 ? fresh.length : line;
  return `differs from line ${at + 1} (${old.length} lines, now ${fresh.length})\n  - ${old[at] ?? ''}\n  + ${fresh[at] ?? ''}`;
}

const VIEWS = 'protocol/views.schema.json';
const viewsSchema = await readJson(VIEWS);
const views = viewsOf(viewsSchema);
const coreFolders = await foldersIn('src/views');
const core = views.map(({ name }) => name).filter(name => coreFolders.includes(name));
const slices = await foldersIn('src/instruments');
const check = process.argv.includes('--check');
const outputs = {
  'src/protocol/messages.generated.ts': await schemaModule(
    'protocol/messages.schema.json',
    'MESSAGES_SCHEMA'
  ),
  'src/protocol/views.generated.ts': await schemaModule(VIEWS, 'VIEWS_SCHEMA'),
  'src/protocol/view-table.generated.ts': banner(VIEWS) + tableModule(views, core),
  'src/views/loaders.generated.ts': banner(VIEWS) + loadersModule(core),
  'src/instruments/slices.generated.ts': banner('the folders of src/instruments') + slicesModule(slices),
  'megalens/pictures/widgets/generated.py': widgetsModule(views, VIEWS),
  'megalens/api/notebook_generated.py': notebookModule(views, viewsSchema, VIEWS),
  'docs/view-options.md': optionsPage(views, VIEWS),
  'src/protocol/streams.generated.ts': await streamsModule(),
  'src/charts/templates.generated.ts': await chartsModule(),
  'src/charts/colors.generated.ts': await colorsModule()
};
if (slices.includes('pipeline')) {
  const folder = 'src/instruments/pipeline';
  outputs[`${folder}/protocol/pipeline.generated.ts`] = await schemaModule(
    'protocol/pipeline.schema.json',
    'PIPELINE_SCHEMA',
    '../../../protocol/schema'
  );
  outputs[`${folder}/split/protocol/split.generated.ts`] = await schemaModule(
    'protocol/split.schema.json',
    'SPLIT_SCHEMA',
    '../../../../protocol/schema'
  );
}
const options = { ...(await prettier.resolveConfig(join(root, 'package.json'))), parser: 'typescript' };
let changed = 0;
for (const [path, text] of Object.entries(outputs)) {
  if (text === null) {
    continue;
  }
  // Python and prose are written as their own formatters leave them.
  const formatted = path.endsWith('.ts') ? await prettier.format(text, options) : text;
  const before = await readFile(join(root, path), 'utf8').catch(() => null);
  if (before === formatted) {
    continue;
  }
  changed += 1;
  if (check) {
    console.error(`${path} ${summary(before, formatted)}`);
  } else {
    await writeFile(join(root, path), formatted);
    console.log(`wrote ${relative(process.cwd(), join(root, path))}`);
  }
}
if (check && changed > 0) {
  console.error(
    `${changed} generated file(s) are out of step with protocol/. Run \`npm run generate\` and commit the result.`
  );
  process.exit(1);
}
