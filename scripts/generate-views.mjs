// What is made from the views' entries of protocol/views.schema.json: the table of views, the map of their code, the Python widgets and
// notebook methods, and the page of their options.

const PYTHON_WORDS = new Set(['pass', 'from', 'in', 'is', 'class', 'def', 'lambda', 'global']);
const WIDTH = 108;

/** Return every view of the schema in the order in which they are offered: definition, descriptor and options. */
export function viewsOf(schema) {
  return Object.entries(schema.$defs)
    .filter(([, node]) => node['x-view'] !== undefined)
    .map(([definition, node]) => {
      const { view, ...options } = node.properties;
      return {
        definition,
        name: view.const,
        doc: node.description,
        about: node['x-view'],
        required: node.required,
        options: Object.entries(options).map(([name, spec]) => optionOf(schema, name, spec))
      };
    });
}

/** Read one option: its own words, over those of the definition that it refers to. */
function optionOf(schema, name, spec) {
  const alias = spec.$ref?.slice('#/$defs/'.length);
  return {
    name,
    argument: PYTHON_WORDS.has(name) ? `${name}_` : name,
    alias,
    spec: { ...(alias === undefined ? {} : schema.$defs[alias]), ...spec }
  };
}

/** Return the descriptors as a TypeScript table that loads nothing. */
export function tableModule(views, core) {
  const table = Object.fromEntries(
    views.map(({ name, about }) => {
      const { python: _python, details: _details, positional: _positional, ...shown } = about;
      return [name, { name, ...shown }];
    })
  );
  return (
    "import type { IViewInfo } from './view-descriptor';\n" +
    "import type { ViewOptions } from './views.generated';\n\n" +
    '/** What is known of each view before its code is loaded, in the order in which views are offered. */\n' +
    `export const VIEWS: Readonly<Record<ViewOptions['view'], IViewInfo>> = ${JSON.stringify(table)};\n\n` +
    '/** Those that are part of the core; instruments bring the others. */\n' +
    `export const CORE_VIEWS: readonly ViewOptions['view'][] = ${JSON.stringify(core)};\n`
  );
}

/** Return the map from the name of a view of the core to its code. */
export function loadersModule(core) {
  const lines = core.map(name => `  ${name}: () => import('./${name}/${name}-view')`);
  return (
    '/** The code of each view of the core, loaded when it is first asked for. */\n' +
    `export const LOADERS = {\n${lines.join(',\n')}\n} as const;\n`
  );
}

/** Return the list of the instruments, which are found by their folders. */
export function slicesModule(slices) {
  return (
    slices.map(name => `import { slice as ${name} } from './${name}';\n`).join('') +
    "import type { IInstrumentSlice } from '../slice';\n\n" +
    '/** Every instrument that is here: see `IInstrumentSlice`. Nobody but the roots of pages and engines imports this. */\n' +
    `export const SLICES: readonly IInstrumentSlice[] = [${slices.join(', ')}];\n`
  );
}

const nullable = spec => Array.isArray(spec.type) && spec.type.includes('null');
const kindOf = spec => (Array.isArray(spec.type) ? spec.type.find(kind => kind !== 'null') : spec.type);
/** Python's type of the members of a list. */
const elementOf = spec => (spec.items?.type === 'number' ? 'float' : 'int');

const isPair = spec => kindOf(spec) === 'array' && spec.minItems === 2 && spec.maxItems === 2;
const isAlias = ({ alias, spec }) =>
  alias !== undefined && (spec.enum !== undefined || ['ranges', 'steps'].includes(spec['x-input']));
const literal = values => `Literal[${values.map(value => JSON.stringify(value)).join(', ')}]`;

/** Return the Python type of what a person may give for an option. */
function pythonType(option) {
  const { spec, alias } = option;
  const own = spec['x-python'] ?? {};
  const plain = isAlias(option) ? alias : plainType(spec);
  const type = own.also === undefined ? plain : `${plain} | ${own.also}`;
  const isOpen = nullable(spec) || own.optional || kindOf(spec) === 'object';
  return isOpen ? `${type} | None` : type;
}

function plainType(spec) {
  if (spec.enum !== undefined) {
    return literal(spec.enum);
  }
  switch (spec['x-input']) {
    case 'ranges':
      return 'str | int | Iterable[int]';
    case 'steps':
      return 'str | int | slice | Iterable[int]';
    case 'words':
      return 'str | Sequence[str]';
    case 'runs':
      return 'Any';
  }
  const words = {
    string: 'str',
    integer: 'int',
    number: 'float',
    boolean: 'bool',
    object: 'Mapping[str, Any]'
  };
  return isPair(spec) ? `Sequence[${elementOf(spec)}]` : words[kindOf(spec)];
}

/** Return the type of an option as a numpy docstring has it. */
function proseType({ spec }) {
  const own = spec['x-python'] ?? {};
  const optional = nullable(spec) || own.optional || kindOf(spec) === 'object' ? ', optional' : '';
  if (spec.enum !== undefined) {
    const few = spec.enum.length <= 3 && own.also === undefined;
    return (few ? `{${spec.enum.map(value => JSON.stringify(value)).join(', ')}}` : 'str') + optional;
  }
  const forms = {
    ranges: 'str, int or iterable of int',
    steps: 'int, range or slice',
    words: 'str or sequence of str',
    runs: 'run, str or sequence of them'
  };
  const kinds = { string: 'str', integer: 'int', number: 'float', boolean: 'bool', object: 'mapping' };
  return (
    (forms[spec['x-input']] ??
      (isPair(spec) ? `(${elementOf(spec)}, ${elementOf(spec)})` : kinds[kindOf(spec)])) + optional
  );
}

function proseOf({ spec }) {
  const several = spec.enum !== undefined && (spec.enum.length > 3 || spec['x-python']?.also !== undefined);
  return [
    spec.description,
    ...(several ? [`One of ${spec.enum.map(value => `\`\`${value}\`\``).join(', ')}.`] : []),
    ...(spec['x-input'] === 'ranges' ? ['Numbers will do too, such as ``3`` or ``range(4)``.'] : []),
    ...(spec['x-python']?.note === undefined ? [] : [spec['x-python'].note])
  ].join(' ');
}

/** Return a JSON value as a Python default: nothing that could be changed by whoever is called. */
function pythonDefault({ spec }) {
  const value = spec['x-python']?.optional ? null : spec.default;
  if (value === null || (kindOf(spec) === 'object' && spec.enum === undefined)) {
    return 'None';
  }
  if (Array.isArray(value)) {
    return `(${value.map(each => JSON.stringify(each)).join(', ')}${value.length === 1 ? ',' : ''})`;
  }
  return typeof value === 'boolean' ? (value ? 'True' : 'False') : JSON.stringify(value);
}

function wrap(text, indent) {
  const lines = [''];
  for (const word of text.split(' ')) {
    const line = lines.at(-1);
    if (line !== '' && indent.length + line.length + 1 + word.length > WIDTH) {
      lines.push(word);
    } else {
      lines[lines.length - 1] = line === '' ? word : `${line} ${word}`;
    }
  }
  return lines.map(line => indent + line).join('\n');
}

const HEAD = source =>
  `# Generated from ${source} by scripts/generate-protocol.mjs. Do not edit: run \`npm run generate\`.\n`;

/** Return items of a Python list one a line, as its formatter leaves a long one. */
const listed = ([open, close], items, indent = '') =>
  `${open}\n${items.map(item => `${indent}    ${item},\n`).join('')}${indent}${close}`;

/** Return a widget class for each view. */
export function widgetsModule(views, source) {
  const bases = [...new Set(views.flatMap(({ about }) => about.python?.base ?? []))];
  const classes = views.map(({ name, definition, about, options }) => {
    const base = about.python?.base ?? 'View';
    return (
      `@register\nclass ${definition}(${base}):\n` +
      `    """${about.title}. ${about.summary}."""\n\n` +
      `    view_name: ClassVar[str] = ${JSON.stringify(name)}\n\n` +
      options.map(({ argument }) => `    ${argument} = Option()\n`).join('')
    );
  });
  const names = views.map(({ definition }) => definition).sort();
  return (
    HEAD(source) +
    '"""A widget class for each view of the contract."""\n\nfrom __future__ import annotations\n\n' +
    'from typing import ClassVar\n\nfrom ipywidgets import register\n\n' +
    `from .base import Option, View\n${bases.map(base => `from .${base.toLowerCase()} import ${base}\n`).join('')}\n` +
    `__all__ = ${listed(
      '[]',
      ['VIEW_CLASSES', ...names].map(name => `"${name}"`)
    )}\n\n\n` +
    classes.join('\n\n') +
    '\n\n' +
    'VIEW_CLASSES: dict[str, type[View]] = {\n' +
    views.map(({ name, definition }) => `    "${name}": ${definition},\n`).join('') +
    '}\n"""Every view\'s class by the view\'s name."""\n'
  );
}

/** Return the notebook's methods, with signatures and docstrings. */
export function notebookModule(views, schema, source) {
  const options = views.flatMap(view => view.options);
  const used = new Set(
    options.flatMap(option => [
      ...(isAlias(option) ? [option.alias] : []),
      ...(option.spec['x-python']?.also === undefined ? [] : [option.spec['x-python'].also])
    ])
  );
  const aliases = Object.entries(schema.$defs)
    .filter(([name]) => used.has(name))
    .map(([name, node]) => {
      const type = plainType(node);
      const line = `${name} = ${type}`;
      return line.length <= WIDTH
        ? line
        : `${name} = Literal[\n${node.enum.map(value => `    ${JSON.stringify(value)},\n`).join('')}]`;
    });
  return (
    HEAD(source) +
    '# A word such as "forward" is no password.\n# ruff: noqa: S107\n' +
    '"""The views of a run as a person asks for them in a cell. The widgets, and what draws their pictures, are loaded on first use."""\n\n' +
    'from __future__ import annotations\n\nfrom abc import ABC, abstractmethod\n' +
    'from collections.abc import Iterable, Mapping, Sequence\n' +
    'from typing import TYPE_CHECKING, Any, Literal, TypeVar\n\n' +
    `if TYPE_CHECKING:\n    from ..pictures.widgets import ${listed('()', [...views.map(view => view.definition), 'View'].sort(), '    ')}\n\n` +
    '__all__ = ["NotebookViews"]\n\n' +
    `${aliases.join('\n')}\n\n_V = TypeVar("_V", bound="View")\n\n\n` +
    'class NotebookViews(ABC):\n' +
    '    """The views, which take exactly the options of ``protocol/views.schema.json`` and return a widget that draws in the cell."""\n\n' +
    views.map(methodOf).join('\n') +
    '\n    @abstractmethod\n    def _show(self, kind: type[_V], options: Mapping[str, Any]) -> _V:\n' +
    '        """Return a widget of one kind on this run. The options are checked by the widget."""\n'
  );
}

function methodOf({ definition, about, doc, options }) {
  const parameter = option => {
    const value = 'default' in option.spec ? ` = ${pythonDefault(option)}` : '';
    const line = `        ${option.argument}: ${pythonType(option)}${value},`;
    // As ruff formats it.
    const split = (_, inside) =>
      // What has no room in one line of its own either stands one below the other.
      inside.length > 98
        ? `[\n${inside
            .split(', ')
            .map(each => `            ${each},\n`)
            .join('')}        ]`
        : `[\n            ${inside}\n        ]`;
    return `${line.length > 110 ? line.replace(/\[(.*)\]/, split) : line}\n`;
  };
  const isPositional = ({ name }) => about.positional.includes(name);
  const documented = options
    .map(
      option =>
        `        ${option.argument} : ${proseType(option)}\n${wrap(proseOf(option), ' '.repeat(12))}\n`
    )
    .join('');
  const given = ({ argument, spec }) =>
    kindOf(spec) === 'object' && !nullable(spec) ? `{} if ${argument} is None else ${argument}` : argument;
  return (
    `    def ${about.method}(\n        self,\n` +
    options.filter(isPositional).map(parameter).join('') +
    '        *,\n' +
    options
      .filter(option => !isPositional(option))
      .map(parameter)
      .join('') +
    `    ) -> ${definition}:\n        """${doc}\n\n` +
    (about.details === undefined ? '' : `${wrap(about.details, ' '.repeat(8))}\n\n`) +
    `        Parameters\n        ----------\n${documented}\n` +
    '        Raises\n        ------\n        megalens.pictures.widgets.WidgetError\n' +
    '            Naming the argument that is not one of the above.\n        """\n' +
    `        from ..pictures.widgets import ${definition}\n\n        options = {\n` +
    options.map(option => `            "${option.name}": ${given(option)},\n`).join('') +
    `        }\n        return self._show(${definition}, options)\n`
  );
}

/** Return the page of every view's options. */
export function optionsPage(views, source) {
  const cell = text => text.replaceAll('|', '\\|');
  const shown = spec => (spec.default === undefined ? 'required' : `\`${JSON.stringify(spec.default)}\``);
  const valuesOf = ({ spec }) =>
    spec.enum === undefined
      ? ({ ranges: 'ranges', words: 'words', runs: 'runs' }[spec['x-input']] ??
        (isPair(spec)
          ? 'two steps'
          : {
              string: 'text',
              integer: 'whole number',
              number: 'number',
              boolean: 'true, false',
              object: 'filter'
            }[kindOf(spec)]))
      : spec.enum.map(value => `\`${value}\``).join(', ');
  const readsOf = streams =>
    streams.length === 0
      ? 'Needs no stream.'
      : `Reads the streams ${streams.map(stream => `\`${stream}\``).join(', ')}.`;
  const sections = views.map(
    ({ name, about, doc, options }) =>
      `## ${about.title}\n\n${doc}\n\n\`run.${about.method}(…)\`; in JSON \`{"view": "${name}", …}\`; palette: *${about.label}*. ` +
      `${readsOf(about.needs.streams)}\n\n` +
      '| option | values | default | what it does |\n|---|---|---|---|\n' +
      options
        .map(
          option =>
            `| \`${option.name}\` | ${cell(valuesOf(option))} | ${cell(shown(option.spec))} | ${cell(option.spec.description ?? '')} |\n`
        )
        .join('')
  );
  return (
    `<!-- Generated from ${source} by scripts/generate-protocol.mjs. Do not edit: run \`npm run generate\`. -->\n\n` +
    '# Options of every view\n\nThe same options are the arguments of the method in Python, the members of the JSON object in a saved cell, a tab or a report, and the ' +
    'controls of the view\'s toolbar. In Python `pass` is written `pass_`; *ranges* take text such as `"0-3,7"`, a number, or numbers (`range(4)`); *words* one text or several; *runs* runs or their ids; ' +
    'an option whose default is `null` is `None` when absent.\n\n' +
    sections.join('\n')
  );
}
