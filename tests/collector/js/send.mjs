// Sends spans as an agent in JavaScript does: node send.mjs KIND URL COMPRESSION COUNT
import { diag, DiagConsoleLogger, DiagLogLevel } from '@opentelemetry/api';
import { OTLPTraceExporter as Grpc } from '@opentelemetry/exporter-trace-otlp-grpc';
import { OTLPTraceExporter as Json } from '@opentelemetry/exporter-trace-otlp-http';
import { OTLPTraceExporter as Proto } from '@opentelemetry/exporter-trace-otlp-proto';
import { resourceFromAttributes } from '@opentelemetry/resources';
import { BatchSpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace';

const [kind, url, compression, count] = process.argv.slice(2);
// Whatever the exporter has to complain about goes to stderr, where the test finds it.
diag.setLogger(new DiagConsoleLogger(), DiagLogLevel.WARN);

const exporter = new { grpc: Grpc, json: Json, proto: Proto }[kind]({ url, compression });
const provider = new TracerProvider({
  resource: resourceFromAttributes({ 'service.name': 'agent-js' }),
  spanProcessors: [new BatchSpanProcessor({ exporter })],
});
const tracer = provider.getTracer('tests', '1.0');
for (let number = 0; number < Number(count); number++) {
  const span = tracer.startSpan('execute_tool refund', {
    attributes: {
      'gen_ai.tool.name': 'refund',
      'tool.items': number,
      'tool.price': 1.5,
      'tool.tags': ['a', 'b'],
      'tool.cached': false,
    },
  });
  span.addEvent('asked', { who: 'süß 😀' });
  if (number === 0) span.setStatus({ code: 2, message: 'refused' });
  span.end();
}
await provider.forceFlush();
await provider.shutdown();
