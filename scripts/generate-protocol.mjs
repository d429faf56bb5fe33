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
  if (typeof node.$ref === 'string' && !node.$ref.startsWith('#')) {
    return { tsType: ofViews(node.$ref) };
  }
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

/** Return the type that another schema gives a part of `views.schema.json`: that of its module. */
function ofViews(reference) {
  const [name, part, member] = reference.slice('views.schema.json#/$defs/'.length).split('/');
  const { title, type } = viewsSchema.$defs[name];
  imported.add(title);
  if (part !== undefined) {
    return part === 'items' ? `${title}[number]` : `Required<${title}>['${member}']`;
  }
  return type === 'object' || [type].flat().includes('array') ? `Readonly<${title}>` : title;
}

/** Names of types of views that other modules import. */
const imported = new Set();

/** Return the types of requests: nobody changes what he is asked. */
async function requestsModule(path) {
  const types = await schemaModule(path);
  const names = [...imported].sort().join(', ');
  return types
    .replace('\n\n', `\n\nimport type { ${names} } from './views.generated';\n\n`)
    .replace(/^ *(\w+\??):/gm, 'readonly $1:')
    .replace(/([:=] \(?)(?=\[\w|[^[{\n]+(?:\[number\])?\[\](?: \| null\))?;?$)/gm, '$1readonly ');
}

/** Return the types of a schema. */
async function schemaModule(path) {
  const { $id: _id, $schema: _schema, ...schema } = walk(await readJson(path), forCompiler);
  const types = await compile(schema, schema.title, {
    additionalProperties: false,
    bannerComment: '',
    enableConstEnums: false,
    format: false,
    unreachableDefinitions: true
  });
  return banner(path) + tidy(types);
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

/** Return the names of the streams and of the types of their columns. */
async function streamsModule() {
  const path = 'protocol/streams.json';
  const { streams } = await readJson(path);
  const types = Object.values(streams).flatMap(({ fields }) => fields.map(({ type }) => type));
  const union = names => [...new Set(names)].map(name => `'${name}'`).join(' | ');
  return (
    banner(path) +
    `/** Arrow type of a column. */\nexport type FieldType = ${union(types)};\n\n` +
    `/** Name of a stream that this version knows. */\nexport type StreamName = ${union(Object.keys(streams))};\n`
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
  'src/protocol/messages.generated.ts': await schemaModule('protocol/messages.schema.json'),
  'src/protocol/views.generated.ts': await schemaModule(VIEWS),
  'src/protocol/requests.generated.ts': await requestsModule('protocol/requests.schema.json'),
  'src/protocol/view-table.generated.ts': banner(VIEWS) + tableModule(views, core),
  'src/views/loaders.generated.ts': banner(VIEWS) + loadersModule(core),
  'src/instruments/slices.generated.ts': banner('the folders of src/instruments') + slicesModule(slices),
  'megalens/pictures/widgets/generated.py': widgetsModule(views, VIEWS),
  'megalens/api/notebook_generated.py': notebookModule(views, viewsSchema, VIEWS),
  'docs/view-options.md': optionsPage(views, VIEWS),
  'src/protocol/streams.generated.ts': await streamsModule()
};
if (slices.includes('pipeline')) {
  const folder = 'src/instruments/pipeline';
  outputs[`${folder}/protocol/pipeline.generated.ts`] = await schemaModule('protocol/pipeline.schema.json');
  outputs[`${folder}/split/protocol/split.generated.ts`] = await schemaModule('protocol/split.schema.json');
}
const options = { ...(await prettier.resolveConfig(join(root, 'package.json'))), parser: 'typescript' };
let changed = 0;
for (const [path, text] of Object.entries(outputs)) {
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
