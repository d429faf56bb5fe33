import ts from 'typescript';

/**
 * No object is asked by a name that came from outside: `flags[name]` answers `constructor` with what every object inherits, and
 * `flags[name] = …` hangs `__proto__` in as prototype. Found by types: an index of type string (or of no known type) on anything but an array.
 * Names that the compiler knows one by one ('left' | 'right') are fine, and so are Maps.
 */
export const ownNames = {
  meta: {
    type: 'problem',
    docs: { description: 'Ask objects by own()/withOwn() of src/protocol/records.ts, or keep a Map.' },
    schema: [],
    messages: {
      index: '{{text}} is an object by a text: use own() or withOwn() of protocol/own, or a Map.',
      in: '`in` finds inherited names too: use Object.hasOwn, or a Map.',
      assign: 'Object.assign assigns __proto__ as prototype: spread into a literal.'
    }
  },
  create(context) {
    const services = context.sourceCode.parserServices;
    const checker = services.program.getTypeChecker();
    const typeOf = node => checker.getTypeAtLocation(services.esTreeNodeToTSNodeMap.get(node));
    return {
      MemberExpression(node) {
        if (
          node.computed &&
          node.property.type !== 'Literal' &&
          isText(typeOf(node.property)) &&
          !isList(typeOf(node.object), checker)
        ) {
          context.report({
            node,
            messageId: 'index',
            data: { text: context.sourceCode.getText(node).slice(0, 60) }
          });
        }
      },
      "BinaryExpression[operator='in']"(node) {
        if (
          node.left.type !== 'Literal' &&
          node.left.type !== 'PrivateIdentifier' &&
          isText(typeOf(node.left))
        ) {
          context.report({ node, messageId: 'in' });
        }
      },
      "CallExpression[callee.object.name='Object'][callee.property.name='assign']"(node) {
        context.report({ node, messageId: 'assign' });
      }
    };
  }
};

const TEXT = ts.TypeFlags.String | ts.TypeFlags.TemplateLiteral | ts.TypeFlags.Any | ts.TypeFlags.Unknown;

function isText(type) {
  return type.isUnion() ? type.types.some(isText) : (type.flags & TEXT) !== 0;
}

function isList(type, checker) {
  return (
    !(type.flags & (ts.TypeFlags.Any | ts.TypeFlags.Unknown)) &&
    checker.getIndexInfoOfType(type, ts.IndexKind?.Number ?? 1) !== undefined &&
    checker.getIndexInfoOfType(type, ts.IndexKind?.String ?? 0) === undefined
  );
}
